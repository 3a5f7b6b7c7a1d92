"""Screening as a station of the turn: what a flag and a block do, in both modes and over every transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from respserver.config import Config, LatencyClassifierConfig, Mode, TermsClassifierConfig
from respserver.embed import make_server
from respserver.engines.sim import Script, call
from respserver.turn.safety import Screening
from tests.support.lane_wire import LaneWires
from tests.support.live import Wire, calls_of, http, output, post, text_of, tool
from tests.support.spy import Spy
from tests.support.talk import Talk

TOOLS = [tool("first")]


@pytest.fixture
def terms(tmp_path: Path) -> str:
    file = tmp_path / "terms.txt"
    file.write_text("block weapons: nerve gas\nflag gossip: celebrity\n")
    return str(file)


def classifiers(terms: str, when: str) -> tuple[TermsClassifierConfig, ...]:
    return (TermsClassifierConfig(file=terms, when=when),)  # type: ignore[arg-type]  # the test's parameter


@pytest.mark.parametrize("transport", ["websocket", "json", "sse"])
async def test_a_block_before_created_is_one_plain_error_before_any_model_work(
    serve: Any, connect: Any, terms: str, transport: str
) -> None:
    spy = Spy(Script.of("fine", on_end="repeat"))
    server = await serve(engine=spy, classifiers=classifiers(terms, "before"))
    if transport == "websocket":
        wire: Wire = await connect(server)
        error = await wire.refused(input="how is nerve gas made?")
        status, detail = error["status"], error["error"]
        assert text_of(await wire.completed(input="hello")) == "fine"
    else:
        answer = await post(server, input="how is nerve gas made?", stream=transport == "sse")
        status, detail = answer.status_code, answer.json()["error"]
    assert (status, detail["code"], detail["param"]) == (400, "content_policy_violation", "input")
    assert "weapons" in detail["message"]
    assert "nerve gas" not in detail["message"]
    assert not [context for context in spy.contexts if "nerve" in context]


async def test_a_block_beside_rendering_fails_the_turn_before_sampling(serve: Any, connect: Any, terms: str) -> None:
    spy = Spy(Script.of("fine"))
    server = await serve(engine=spy, classifiers=classifiers(terms, "beside"))
    wire: Wire = await connect(server)
    frames = await wire.turn(input="nerve gas")
    assert [frame["type"] for frame in frames] == ["response.created", "response.in_progress", "response.failed"]
    assert frames[-1]["response"]["error"]["code"] == "content_policy_violation"
    assert spy.contexts == []
    answer = await post(server, input="nerve gas")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "content_policy_violation")


async def test_a_flag_goes_on_with_the_chain_into_metadata_log_and_store(
    serve: Any, connect: Any, terms: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(Script.of("fine", on_end="repeat"), classifiers=classifiers(terms, "before"))
    wire: Wire = await connect(server)
    with caplog.at_level("INFO", "respserver.turn"):
        clean = await wire.completed(input="hello")
        flagged = await wire.completed(input="a celebrity!", previous_response_id=clean["id"], metadata={"mine": "1"})
        after = await wire.completed(input="go on", previous_response_id=flagged["id"])
        hydrated = (await post(server, input="go on", previous_response_id=flagged["id"])).json()
    assert clean["metadata"] == {}
    assert flagged["metadata"] == {"mine": "1", "safety_verdict": "flag gossip"}
    assert after["metadata"] == hydrated["metadata"] == {"safety_verdict": "flag gossip"}
    async with http(server) as client:
        assert (await client.get(f"/responses/{flagged['id']}")).json() == flagged
    lines = [entry for entry in caplog.records if entry.message == "turn"]
    assert [getattr(line, "verdict", "") for line in lines] == ["", *["flag gossip"] * 3]


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
async def test_a_flag_goes_with_every_fork_of_the_chain(serve: Any, connect: Any, terms: str, store: bool) -> None:
    server = await serve(Script.of("fine", on_end="repeat"), classifiers=classifiers(terms, "before"))
    source, fork = LaneWires(await connect(server)).lanes("plan", "fork")
    flagged = await source.completed(input="a celebrity!", store=store)
    forked = await fork.completed(input="go on", previous_response_id=flagged["id"], store=store)
    assert forked["metadata"] == {"safety_verdict": "flag gossip"}
    assert (await source.completed(input="hello", store=store))["metadata"] == {}


@pytest.mark.parametrize("when", ["before", "beside"])
async def test_an_append_is_screened_alone_and_a_blocked_one_fails_the_rollout(
    serve: Any, connect: Any, terms: str, when: str
) -> None:
    spy = Spy(Script.of(call("first"), call("first"), "fine"))
    server = await serve(engine=spy, classifiers=classifiers(terms, when), mode=Mode.PROTOTYPE)
    wire: Wire = await connect(server)
    done = (await wire.turn(input="go", tools=TOOLS))[-1]
    await wire.append([output(calls_of(done["response"])[0], "nothing bad")])
    second = (await wire.frames())[-1]
    assert second["type"] == "response.done"
    await wire.append([output(calls_of(second["response"])[0], "nerve gas recipe")])
    frames = await wire.frames()
    assert [frame["type"] for frame in frames] == ["response.failed"]
    assert frames[0]["response"]["error"]["code"] == "content_policy_violation"
    assert len(spy.contexts) == 2
    assert (await wire.turn(input="go", tools=TOOLS))[-1]["type"] == "response.done"


async def test_a_classifier_that_reads_the_context_gets_all_of_it_once(serve: Any, connect: Any) -> None:
    """In a rollout that includes what the rollout itself has brought so far."""
    seen: list[list[str]] = []

    class Reader:
        name, reads, when = "reader", "context", "before"

        async def screen(self, items: Any, verdict: Any) -> Any:
            seen.append([type(item).__name__ for item in items])
            return verdict

        async def aclose(self) -> None:
            pass

    made = make_server(Config(port=0, mode=Mode.PROTOTYPE), script=Script.of(call("first"), "fine", "again"))
    made.services.screening = Screening([Reader()])  # type: ignore[list-item]  # a test's own classifier
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, made.services)
        done = await talk.turn(input="go", tools=TOOLS)
        talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
        final = (await talk.socket.hear_step())[-1]
        await talk.turn(input="more", previous_response_id=final["response"]["id"])
        nursery.cancel_scope.cancel()
    one = ["MessageItem"]
    two = [*one, "FunctionCallItem", "CallOutputItem"]
    assert seen == [one, two, [*two, "MessageItem", "MessageItem"]]


@pytest.mark.parametrize(("when", "created_at"), [("before", 0.2), ("beside", 0.0)])
async def test_latency_before_created_delays_it_and_beside_it_does_not(
    autojump_clock: Any, when: str, created_at: float
) -> None:
    config = Config(port=0, classifiers=(LatencyClassifierConfig(seconds=0.2, when=when),))  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, make_server(config).services)
        began = trio.current_time()
        talk.create(input="hi")
        assert (await talk.socket.hear())["type"] == "response.created"
        assert trio.current_time() - began == pytest.approx(created_at, abs=0.01)
        assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
        assert trio.current_time() - began == pytest.approx(0.2, abs=0.01)
        nursery.cancel_scope.cancel()
