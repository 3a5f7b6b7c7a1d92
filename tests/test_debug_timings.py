"""What ``--debug-timings`` shows a client: stage times in the metadata of each terminal Response, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.config import Mode, TermsClassifierConfig
from respserver.engines.sim import Script, call, fault, step
from respserver.schema.request import TIMINGS_KEY
from respserver.turn.stopwatch import STAGES
from tests.support.live import Frame, Wire, calls_of, http, output, post, stream, tool

TOOLS = [tool("first")]
ENDS: dict[str, tuple[Script, dict[str, Any]]] = {
    "completed": (Script.of("Done."), {}),
    "incomplete": (Script.of("word " * 100), {"max_output_tokens": 16}),
    "failed": (Script.of(step("word " * 20, fault=fault("broke"), fault_after_tokens=12)), {}),
}
BEFORE_THE_END = set(STAGES) - {"post"}


def timings_of(response: Frame) -> dict[str, float]:
    """The stage times that a Response shows, checked for what must be so of any."""
    text = response["metadata"][TIMINGS_KEY]
    timings: dict[str, float] = json.loads(text)
    assert len(text) <= 512
    assert " " not in text
    assert set(timings) <= BEFORE_THE_END | {"first_token", "total"}
    spans = sum(ms for name, ms in timings.items() if name in BEFORE_THE_END)
    assert timings["total"] == pytest.approx(spans, abs=0.001 * len(STAGES))
    assert timings["first_token"] <= timings["total"]
    return timings


@pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
@pytest.mark.parametrize("end", sorted(ENDS))
async def test_every_terminal_response_shows_where_its_time_went(
    serve: Any, connect: Any, transport: str, end: str
) -> None:
    script, fields = ENDS[end]
    server = await serve(script, debug_timings=True)
    request = {"input": "hi", "metadata": {"mine": "1"}, **fields}
    if transport == "json":
        answer = (await post(server, **request)).json()
        if end == "failed":
            assert set(answer) == {"error"}  # there is no Response to show them
            return
        events, response = [], answer
    elif transport == "sse":
        *events, last = await stream(server, **request)
        response = last["response"]
    else:
        wire: Wire = await connect(server)
        *events, last = await wire.turn(**request)
        response = last["response"]
    assert response["status"] == end
    timings = timings_of(response)
    assert {"receive", "validate", "render", "sample"} <= set(timings)
    assert ("save" in timings) == (end != "failed")
    assert response["metadata"]["mine"] == "1"
    assert all(event["response"]["metadata"] == {"mine": "1"} for event in events if "response" in event)


async def test_without_the_option_nothing_is_shown(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("Done.", on_end="repeat"))
    wire: Wire = await connect(server)
    assert (await wire.completed(input="hi"))["metadata"] == {}
    assert (await post(server, input="hi")).json()["metadata"] == {}


async def test_the_stored_response_and_what_goes_on_from_it_do_not_have_them(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("Done.", on_end="repeat"), debug_timings=True)
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi", metadata={"mine": "1"})
    async with http(server) as client:
        stored = (await client.get(f"/responses/{first['id']}")).json()
    assert stored == {**first, "metadata": {"mine": "1"}}
    second = await wire.completed(input="hi", previous_response_id=first["id"])
    assert set(second["metadata"]) == {TIMINGS_KEY}
    assert timings_of(second) != timings_of(first)


async def test_a_rollout_shows_them_once_at_its_end(serve: Any, connect: Any) -> None:
    server = await serve(Script.of(call("first"), "Done."), debug_timings=True, mode=Mode.PROTOTYPE)
    wire: Wire = await connect(server)
    done = (await wire.turn(input="go", tools=TOOLS))[-1]
    assert (done["type"], done["response"]["metadata"]) == ("response.done", {})
    await wire.append([output(calls_of(done["response"])[0])])
    assert "suspended" in timings_of((await wire.frames())[-1]["response"])


async def test_a_warm_up_shows_them_without_a_first_token(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(debug_timings=True))
    text = (await wire.completed(input="hi", generate=False))["metadata"][TIMINGS_KEY]
    assert "first_token" not in json.loads(text)


async def test_a_clients_sixteen_pairs_leave_no_room_for_them(serve: Any, connect: Any, tmp_path: Any) -> None:
    """A verdict is no client's pair, but it takes a place too."""
    terms = tmp_path / "terms.txt"
    terms.write_text("flag gossip: celebrity\n")
    classifiers = (TermsClassifierConfig(file=str(terms)),)
    server = await serve(Script.of("Done.", on_end="repeat"), debug_timings=True, classifiers=classifiers)
    wire: Wire = await connect(server)
    pairs = {f"key {number}": "" for number in range(15)}
    assert set((await wire.completed(input="hi", metadata=pairs))["metadata"]) == {*pairs, TIMINGS_KEY}
    full = {**pairs, "one more": ""}
    assert (await wire.completed(input="hi", metadata=full))["metadata"] == full
    flagged = await wire.completed(input="a celebrity", metadata=pairs)
    assert set(flagged["metadata"]) == {*pairs, "safety_verdict"}
