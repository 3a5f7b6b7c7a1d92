"""Sessions on a fake socket: what a turn costs whatever lies behind it, and how a connection ends."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Config, Limits, Mode
from respserver.engines.sim import Script, call, delay
from respserver.services import build_services
from respserver.session import Session
from tests.support.fake_socket import FakeSocket
from tests.support.live import calls_of, output, text_of, tool
from tests.support.spy import Spy
from tests.support.talk import Talk, services, settled

TOOLS = [tool("first"), tool("second")]


class Calls:
    """Counts the calls of our own Python functions while it is entered: work, in a unit that does not depend on
    the machine."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def __enter__(self) -> Counter[str]:
        sys.setprofile(self._note)
        return self.counted

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and "/respserver/" in file and not any(room in file for room in NOT_THE_TURN):
            self.counted[f"{file}:{frame.f_code.co_name}"] += 1


NOT_THE_TURN = ("/engines/sim/", "/ledger/", "/turn/postinference.py", "/logger.py")
"""The model itself, and what goes on behind the turn whenever it finds time."""


@pytest.mark.slow
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_continuation_does_the_same_work_whatever_history_lies_behind_it(mode: Mode, store: bool) -> None:
    """Nothing decodes, renders, tokenises or copies old items: every function of ours is called as often with 600
    items behind the turn as with 6."""
    config = Config(mode=mode, limits=Limits(token_cache_bytes=0))  # or the second time would be less work
    parts = build_services(config, script=Script.of("noted", on_end="repeat"))
    metrics = parts.metrics
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, parts)
        parent: str | None = None
        seen = {}
        for size in (3, 300):
            lines = [{"role": "user", "content": f"line {n}"} for n in range(size)]
            long = await talk.turn(store=store, previous_response_id=parent, input=lines, tools=TOOLS)
            parent = long["response"]["id"]
            short = await talk.turn(store=store, previous_response_id=parent, input="next", tools=TOOLS)
            parent = short["response"]["id"]
            before = (metrics.items_rendered, metrics.bytes_tokenised, metrics.tokens_extended, metrics.heads_rendered)
            with Calls() as calls:
                last = await talk.turn(store=store, previous_response_id=parent, input="next", tools=TOOLS)
            after = (metrics.items_rendered, metrics.bytes_tokenised, metrics.tokens_extended, metrics.heads_rendered)
            seen[size] = (dict(calls), tuple(b - a for a, b in zip(before, after, strict=True)))
            parent = last["response"]["id"]
        assert last["response"]["usage"]["input_tokens"] > 1000
        assert seen[3][1] == seen[300][1] == (1, len("usernext"), seen[3][1][2], 0)
        assert seen[3][0] == seen[300][0]
        nursery.cancel_scope.cancel()


async def test_the_buffer_of_a_chain_is_one_object_that_grows_and_the_tools_are_read_once() -> None:
    parts = services(Script.of("noted", on_end="repeat"))
    async with trio.open_nursery() as nursery:
        socket = FakeSocket()
        session = Session(socket, parts, tenant="default", stop=trio.Event())
        nursery.start_soon(session.run)
        lane = session._connection.lane
        socket.say({"type": "response.create", "model": "sim", "input": "one", "tools": TOOLS})
        first = (await socket.hear_step())[-1]["response"]
        assert lane.latest is not None
        buffer, sequence, tools = lane.latest.context.buffer, lane.latest.context.sequence, lane.tools
        length = len(buffer)
        socket.say(
            {
                "type": "response.create",
                "model": "sim",
                "input": "two",
                "tools": TOOLS,
                "previous_response_id": first["id"],
            }
        )
        await socket.hear_step()
        assert lane.latest.context.buffer is buffer
        assert lane.latest.context.sequence is sequence
        assert lane.tools is tools
        assert len(buffer) > length
        nursery.cancel_scope.cancel()


async def test_other_tools_make_a_new_head_and_keep_the_body() -> None:
    parts = services(Script.of("noted", on_end="repeat"))
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, parts)
        first = (await talk.turn(input="one", tools=TOOLS))["response"]
        tokenised = parts.metrics.bytes_tokenised
        other = (await talk.turn(input="two", tools=TOOLS[:1], previous_response_id=first["id"]))["response"]
        assert other["usage"]["input_tokens_details"]["cached_tokens"] == 0
        assert parts.metrics.heads_rendered == 2
        assert parts.metrics.items_rendered == 2
        assert parts.metrics.bytes_tokenised - tokenised < 400  # the new head and the new line, not the old line
        spy = parts.router.routes[0].engine
        assert isinstance(spy, Spy)
        assert spy.contexts[-1] == "tools: first\nuser: one\nassistant: noted\nuser: two"
        assert spy.closed == 1  # the run on the old head
        nursery.cancel_scope.cancel()


async def test_a_route_is_resolved_once_a_connection_and_again_when_the_model_changes() -> None:
    parts = services()
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, parts)
        for model in ("sim", "sim", "other", "sim"):
            await talk.turn(input="hi", model=model)
        assert parts.metrics.routes_resolved == 3
        nursery.cancel_scope.cancel()


class SlowSocket(FakeSocket):
    """A client that reads only when it is told to: ``drain`` waits while more than a few messages are unread."""

    def __init__(self) -> None:
        super().__init__()
        self.read = trio.Event()
        self.unread = 0

    def send_many(self, messages: Sequence[bytes]) -> None:
        super().send_many(messages)
        self.unread += len(messages)

    async def drain(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.unread > 10:
            await self.read.wait()


@pytest.mark.parametrize("frame", ['{"type":"response.create","model":"sim","generate":false,"input":"x"}', "not json"])
async def test_what_waits_for_a_client_that_reads_nothing_is_bounded(frame: str) -> None:
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, services(), SlowSocket())
        assert isinstance(talk.socket, SlowSocket)
        for _ in range(60):
            talk.socket.say(frame)
        await trio.testing.wait_all_tasks_blocked()
        assert 10 < talk.socket.unread < 20
        talk.socket.read.set()
        await trio.testing.wait_all_tasks_blocked()
        assert talk.socket.unread >= 60
        nursery.cancel_scope.cancel()


async def test_creates_that_wait_are_bounded_in_size_too() -> None:
    parts = services(Script.of([delay(0.05), "slow"], on_end="repeat"), queued_bytes=5000)
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, parts)
        for size in (6000, 3000, 10):
            talk.create(input="x" * size)
        refused = [frame for frame in [await talk.socket.hear() for _ in range(4)] if frame["type"] == "error"]
        assert [error["error"]["code"] for error in refused] == ["queue_full"] * 2
        assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
        assert (await talk.turn(input="x" * 4000))["type"] == "response.completed"
        nursery.cancel_scope.cancel()


async def test_shutdown_closes_an_idle_socket_with_1001(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, services())
        await talk.turn(input="hi")
        began = trio.current_time()
        talk.stop.set()
        await talk.over.wait()
        assert talk.socket.code == 1001
        assert trio.current_time() == began
        nursery.cancel_scope.cancel()


async def test_shutdown_gives_running_turns_their_grace_and_refuses_what_waits(autojump_clock: Any) -> None:
    script = Script.of([delay(5), "in time"], on_end="repeat")
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, services(script, grace_seconds=10.0))
        talk.create(input="hi")
        talk.create(input="waits")
        assert (await talk.socket.hear())["type"] == "response.created"
        talk.stop.set()
        await trio.testing.wait_all_tasks_blocked()
        talk.create(input="too late")
        frames = await talk.socket.hear_step() + await talk.socket.hear_step() + await talk.socket.hear_step()
        errors = [frame for frame in frames if frame["type"] == "error"]
        assert [(error["status"], error["error"]["code"]) for error in errors] == [(503, "server_shutting_down")] * 2
        (done,) = [frame for frame in frames if frame["type"] == "response.completed"]
        assert text_of(done["response"]) == "in time"
        await talk.over.wait()
        assert (talk.socket.code, trio.current_time()) == (1001, pytest.approx(5, abs=0.1))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_turn_that_outlives_the_grace_ends_with_a_terminal(autojump_clock: Any, mode: Mode) -> None:
    script = Script.of(call("first"), "x") if mode is Mode.PROTOTYPE else Script.of([delay(500), "never"])
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, services(script, mode=mode, grace_seconds=10.0))
        talk.create(input="hi", tools=TOOLS)
        if mode is Mode.PROTOTYPE:
            assert (await talk.socket.hear_step())[-1]["type"] == "response.done"
        else:
            assert (await talk.socket.hear())["type"] == "response.created"
        talk.stop.set()
        failed = (await talk.socket.hear_step())[-1]
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"]["code"] == "server_shutting_down"
        await talk.over.wait()
        assert (talk.socket.code, trio.current_time()) == (1001, pytest.approx(10, abs=0.1))
        nursery.cancel_scope.cancel()


async def test_the_age_limit_is_one_error_frame_and_a_close(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, services(connection_seconds=3600.0))
        await talk.turn(input="hi")
        error = await talk.socket.hear()
        assert trio.current_time() == pytest.approx(3600, abs=0.1)
        assert (error["status"], error["error"]["code"]) == (400, "websocket_connection_limit_reached")
        assert "(60 minutes)" in error["error"]["message"]
        assert "stream_id" not in error
        await talk.over.wait()
        assert talk.socket.code == 1001
        nursery.cancel_scope.cancel()


async def test_when_the_client_leaves_everything_it_held_is_freed() -> None:
    parts = services(Script.of(call("first"), "thanks"), mode=Mode.PROTOTYPE)
    spy = parts.router.routes[0].engine
    assert isinstance(spy, Spy)
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, parts)
        done = await talk.turn(input="go", tools=TOOLS)
        talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
        await talk.socket.hear_step()
        await talk.turn(input="go", tools=TOOLS)
        assert spy.sequences_open == 2
        talk.socket.leave()
        await talk.over.wait()
        await settled()
        assert spy.sequences_open == len(parts.kept) == 1  # the first one is stored and may be continued elsewhere
        parts.kept.clear()
        await settled()
        assert spy.sequences_open == 0
        nursery.cancel_scope.cancel()


async def test_every_turn_has_one_log_line_however_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    parts = services(Script.of("fine", [delay(0.001), "x" * 4000], [delay(60), "never"]))
    with caplog.at_level("INFO", "respserver.turn"):
        async with trio.open_nursery() as nursery:
            talk = Talk(nursery, parts)
            done = (await talk.turn(input="secret words", store=False))["response"]
            await talk.turn(input=42)
            await talk.turn(input="x", previous_response_id="resp_nobody")
            talk.create(input="y", previous_response_id=done["id"], metadata={"a": "b"})
            await talk.socket.hear()
            talk.socket.leave()
            await talk.over.wait()
            parts.post.close()
    lines = [entry for entry in caplog.records if entry.message == "turn"]
    assert [(line.status, getattr(line, "error_code", None)) for line in lines] == [
        ("completed", None),
        ("refused", "invalid_type"),
        ("refused", "previous_response_not_found"),
        ("cancelled", None),
    ]
    assert lines[0].transport == "websocket"
    assert lines[0].output_tokens > 0
    assert {"receive_ms", "render_ms", "first_token_ms", "sample_ms", "write_ms", "total_ms"} <= set(vars(lines[0]))
    assert all(line.total_ms > 0 for line in lines)
    assert "secret words" not in caplog.text + str([vars(entry) for entry in caplog.records])
