"""Prototype mode over real sockets: what the transcripts of ``test_prototype_transcripts.py`` cannot say."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from respserver.client import Client
from respserver.config import Mode
from respserver.engines.sim import Script, call
from tests.support.live import Wire, calls_of, output, tool
from tests.support.spy import Spy
from tests.support.talk import Talk, services, settled

TOOLS = [tool("first"), tool("second")]
PAIR = Script.of([call("first"), call("second")], "thanks")


@pytest.mark.slow
async def test_a_rollout_of_twenty_calls_repeats_no_earlier_work(serve: Any) -> None:
    """One response, one number run, one terminal; each item is rendered once and given to the engine once."""
    spy = Spy(Script.of(*[call("first", n=number) for number in range(20)], "all done"))
    server = await serve(engine=spy, mode=Mode.PROTOTYPE)
    events: list[Any] = []

    async def first(arguments: dict[str, Any]) -> str:
        return f"result {arguments['n']}"

    tools = {"first": first}
    async with Client(server.base_url).rollout("go", model="sim", tools=tools, tool_definitions=TOOLS) as rollout:
        events = [event async for event in rollout]
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))
    ids = {event.response.id for event in events if hasattr(event, "response")}
    assert len(ids) == 1
    kinds = [type(event).__name__ for event in events]
    assert (kinds.count("ResponseCreated"), kinds.count("ResponseDone"), kinds.count("ResponseCompleted")) == (1, 20, 1)
    response = events[-1].response
    assert [item.id for item in response.output] == [
        event.item.id for event in events if type(event).__name__ == "OutputItemDone"
    ]
    assert len(response.output) == 21
    assert server.metrics.items_rendered == 21  # the user's line and twenty outputs, each once
    assert server.metrics.heads_rendered == 1
    assert server.metrics.sequences_opened == 1
    assert server.metrics.pauses == 20
    assert len(spy.given) == 22  # the head, the line, twenty outputs
    assert server.metrics.tokens_extended == sum(len(ids) for ids in spy.given[1:])
    assert spy.contexts[-1].count("tool first: result") == 20


async def test_outputs_that_come_in_the_moment_of_the_deadline_are_taken_or_refused_and_never_both(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    parts = services(Script.of(call("first"), "thanks", on_end="repeat"), mode=Mode.PROTOTYPE, tool_seconds=1.0)
    talk = Talk(nursery, parts)
    for _ in range(16):  # which task runs first is Trio's to choose
        done = await talk.turn(input="go", tools=TOOLS)
        await settled()
        mock_clock.jump(1)
        talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
        last = (await talk.socket.hear_step())[-1]["type"]
        await settled()
        assert (last, talk.socket.unheard) in {("response.completed", 0), ("response.failed", 1)}
        if talk.socket.unheard:
            assert (await talk.socket.hear())["error"]["code"] == "response_not_suspended"
    assert (parts.suspensions.count, parts.slots.active) == (0, 0)


async def test_a_disconnect_frees_a_suspended_rollout(serve: Any, connect: Any) -> None:
    spy = Spy(PAIR)
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    await wire.turn(input="go", tools=TOOLS)
    assert (spy.closed, spy.sequences_open) == (0, 1)
    await wire.socket.aclose()
    with trio.fail_after(5):
        while spy.sequences_open:
            await trio.sleep(0.001)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "first"}], ids=str)
async def test_a_call_that_is_demanded_is_demanded_once(serve: Any, connect: Any, choice: Any) -> None:
    """No append could end a rollout that had to call for ever."""
    wire: Wire = await connect(await serve(mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS, tool_choice=choice))[-1]
    (made,) = calls_of(done["response"])
    await wire.append([output(made)])
    assert (await wire.frames())[-1]["type"] == "response.completed"
