"""A server inside another program, with Trio or without."""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from respserver.config import Config, Limits, Mode
from respserver.embed import make_server, open_server, start_server
from respserver.engines.sim import Script, fault, text
from respserver.engines.sim.engine import SimSequence
from respserver.errors import ConfigError
from respserver.ledger.sqlite import SqliteLedger
from respserver.ledger.tally import Tally
from respserver.ledger.totals import Totals, read_totals
from tests.support.ledger_kit import record, usage
from tests.support.live import PATIENCE, open_wire


def ask(base_url: str, text: str) -> str:
    body = json.dumps({"model": "sim", "input": text}).encode()
    request = urllib.request.Request(f"{base_url}/responses", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        response = json.load(answer)
    text_found: str = response["output"][0]["content"][0]["text"]
    return text_found


def test_a_server_in_a_thread_serves_code_without_any_async_library() -> None:
    with start_server(script=Script.of("from the script", on_end="repeat")) as server:
        assert ask(server.base_url, "hi") == "from the script"
        assert server.metrics.turns == 1
        assert server.ws_url.startswith("ws://127.0.0.1:")
        port = server.address.port
    with pytest.raises(OSError):
        ask(f"http://127.0.0.1:{port}/v1", "gone")


def test_two_servers_in_one_process_do_not_know_each_other() -> None:
    with start_server(script=Script.of("one")) as one, start_server(script=Script.of("two")) as two:
        assert (ask(one.base_url, "hi"), ask(two.base_url, "hi")) == ("one", "two")


def test_what_is_wrong_is_raised_where_the_server_is_opened() -> None:
    with pytest.raises(ConfigError, match="host"), start_server(Config(host="0.0.0.0", port=0)):
        pass
    with pytest.raises(ConfigError, match=r"^config: expected a Config, got 'shipped'"), start_server("shipped"):  # type: ignore[arg-type]
        pass
    with (
        pytest.raises(ConfigError) as caught,
        start_server(script="Good morning."),  # type: ignore[arg-type]  # that is what is tested
    ):
        pass
    assert str(caught.value) == 'script: expected a Script, got str; use Script.of("…")'
    with pytest.raises(ConfigError, match=r"^tps: expected a number of at least 0, got -1"):
        make_server(Config(port=0, tps=-1.0))
    with (
        start_server() as server,
        pytest.raises(
            OSError, match=rf"cannot listen on 127\.0\.0\.1 port {server.address.port}: .*in use; use Config\(port=0\)"
        ),
        start_server(Config(port=server.address.port)),
    ):
        pass


def test_a_server_in_a_thread_tells_what_was_used_at_once_and_afterwards() -> None:
    script = Script.of("one", on_end="repeat")
    config = Config(port=0, limits=Limits(ledger_records=2, grace_seconds=0.0))
    with start_server(config, script=script) as server:
        assert server.usage() == Totals()
        for number in range(1, 4):
            ask(server.base_url, "hi")
            assert server.usage().turns == number
        latest = [turn.response_id for turn in server.turns()]
        assert len(latest) == 2
        used = server.usage()
        assert used.total_tokens == used.input_tokens + used.output_tokens > 0
        assert used.output_tokens == 3 * server.turns()[-1].usage.output_tokens
    assert (server.usage(), [turn.response_id for turn in server.turns()]) == (used, latest)


def test_refused_and_failed_turns_are_counted_as_failed() -> None:
    with start_server(script=Script.of([fault("broken")])) as server:
        for model in ("sim", 5):
            body = json.dumps({"model": model, "input": "hi"}).encode()
            request = urllib.request.Request(f"{server.base_url}/responses", body, {"Content-Type": "application/json"})
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=10)
        assert (server.usage().turns, server.usage().failed) == (2, 2)
        assert [turn.status for turn in server.turns()] == ["failed", "refused"]


def test_the_servers_own_thread_may_ask_too(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """As a program's log handler might. It must not wait for the step that it stands in. The ledger is a file here."""
    seen: list[int] = []

    class Curious(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "turn":
                seen.append(server.usage().turns)
                handled.set()

    handler, handled, logger = Curious(), threading.Event(), logging.getLogger("respserver.turn")
    caplog.set_level(logging.INFO, logger.name)
    logger.addHandler(handler)
    try:
        with start_server(Config(port=0, ledger=str(tmp_path / "ledger.db"))) as server:
            ask(server.base_url, "hi")
            assert handled.wait(PATIENCE)
    finally:
        logger.removeHandler(handler)
    assert seen == [1]


@pytest.mark.parametrize("mode", Mode)
async def test_a_turn_is_counted_when_its_client_has_seen_the_end(mode: Mode) -> None:
    script = Script.of("one", [text("two"), fault("broken")])
    async with open_server(Config(port=0, mode=mode), script=script) as server, open_wire(server.ws_url) as wire:
        first = await wire.completed(input="hi")
        assert server.usage().total_tokens == first["usage"]["total_tokens"]
        assert (await wire.turn(input="go on", previous_response_id=first["id"]))[-1]["type"] == "response.failed"
        assert (server.usage().turns, server.usage().failed) == (2, 1)
        assert [turn.previous_response_id for turn in server.turns()] == [None, first["id"]]
        await wire.refused(input="go on", previous_response_id="resp_unknown")
        assert server.usage().failed == 2


async def test_a_turn_is_counted_even_while_its_engine_is_slow_to_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = trio.Event()

    async def aclose(_self: SimSequence) -> None:
        await let_go.wait()

    monkeypatch.setattr(SimSequence, "aclose", aclose)
    script = Script.of([text("one"), fault("broken")])
    async with open_server(Config(port=0), script=script) as server, open_wire(server.ws_url) as wire:
        assert (await wire.turn(input="hi"))[-1]["type"] == "response.failed"
        assert server.usage().failed == 1
        let_go.set()


async def test_the_tally_adds_up_as_a_ledgers_file_does(tmp_path: Path) -> None:
    records = [
        record(1, usage=usage(100, 60, 30, 20)),
        record(2, usage=usage(7, 0, 5), status="incomplete"),
        *(record(number, status=status) for number, status in enumerate(("failed", "refused", "cancelled"))),
    ]
    tally, ledger = Tally(3), SqliteLedger(str(tmp_path / "ledger.db"))
    for one in records:
        tally.add(one)
    await ledger.write(records)
    await ledger.aclose()
    assert tally.total == read_totals(str(tmp_path / "ledger.db"), ())[1]
    assert tally.latest == records[-3:]
