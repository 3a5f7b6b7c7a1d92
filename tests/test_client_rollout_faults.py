"""The tool loop when something goes wrong: connections that die beside tools, tools that raise, servers that babble."""

from __future__ import annotations

import msgspec
import pytest
import trio

from respserver.client import Client, ConnectionLost, Rollout
from respserver.errors import ApiError, InvalidRequest
from tests.support.client_servers import (
    ANSWER,
    NOT_FOUND,
    Script,
    call,
    collect,
    completed,
    connected,
    created,
    done,
    peering,
)
from tests.support.raw_websocket import TEXT


def output(call_id, said):
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def rollout(ws, **tools):
    return Rollout(ws, "Go.", model="sim", tools=tools)


def pausing(end, on_pause):
    """A server that pauses with ``end``, waits for ``on_pause`` and hangs up without a word."""

    async def play(peer):
        await peer.accept()
        await peer.events()
        await peer.send(TEXT, msgspec.json.encode(end))
        await on_pause.wait()

    return peering(play)


async def until_lost(ws):
    while ws.close_code is None:
        await trio.testing.wait_all_tasks_blocked()


ENDS = pytest.mark.parametrize("end", [done(call("call_1")), completed(call("call_1"))], ids=["prototype", "shipped"])


@ENDS
async def test_a_tool_finishes_when_the_connection_dies_beside_it_and_what_it_said_is_kept(end):
    at_work, finished = trio.Event(), []

    async with pausing(end, at_work) as url, Client(url).connect() as ws:

        async def work(_):
            at_work.set()
            await until_lost(ws)
            finished.append(True)
            return "done all the same"

        events = rollout(ws, weather=work)
        assert await anext(events) == end
        with pytest.raises(ConnectionLost, match="1006"):
            await anext(events)
        assert finished == [True]
        assert events.outputs == [output("call_1", "done all the same")]
        assert await collect(events) == []


@ENDS
async def test_no_tool_starts_for_a_connection_that_is_known_to_be_dead(end):
    async def never(_):
        raise AssertionError("should not run")

    gone = trio.Event()
    async with pausing(end, gone) as url, Client(url).connect() as ws:
        events = rollout(ws, weather=never)
        assert await anext(events) == end
        gone.set()
        await until_lost(ws)
        with pytest.raises(ConnectionLost, match="1006"):
            await anext(events)
        assert events.outputs == []


@ENDS
async def test_a_tool_that_raises_ends_the_rollout_and_no_call_is_run_twice(end):
    """Nothing is sent for it; the pause stays open, and its caller may still answer."""
    runs = []

    async def broken(_):
        runs.append("broken")
        raise LookupError("no such city")

    async def slow(_):
        runs.append("slow")
        try:
            await trio.sleep_forever()
        finally:
            runs.append("slow cancelled")

    calls = [call("call_1", "slow"), call("call_2", "broken")]
    end = type(end)(**{**msgspec.structs.asdict(end), "response": msgspec.structs.replace(end.response, output=calls)})
    script = Script([end], [completed(ANSWER)])
    async with connected(script) as ws:
        events = rollout(ws, slow=slow, broken=broken)
        await anext(events)
        with pytest.raises(ExceptionGroup) as caught:
            await anext(events)
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert await collect(events) == []
        assert sorted(runs) == ["broken", "slow", "slow cancelled"]
        assert len(script.received) == 1
        outputs = [output("call_1", "sorry"), output("call_2", "sorry")]
        assert await collect(ws.resume(outputs)) == [completed(ANSWER)]


async def test_a_rollout_that_is_cancelled_at_its_tools_cancels_them_and_is_over():
    left = []

    async def slow(_):
        try:
            await trio.sleep_forever()
        finally:
            left.append(True)

    script = Script([done(call("call_1"))])
    async with connected(script) as ws:
        events = rollout(ws, weather=slow)
        await anext(events)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events.__anext__)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert left == [True]
        assert await collect(events) == []
    assert len(script.received) == 1


async def test_an_output_may_be_a_list_of_content_parts():
    parts = [{"type": "input_text", "text": "sun"}, {"type": "input_image", "image_url": "https://host.example/a.png"}]

    async def look(_):
        return parts

    script = Script([done(call("call_1"))], [completed(ANSWER)])
    async with connected(script) as ws:
        await collect(rollout(ws, weather=look))
    assert script.received[1]["input"] == [output("call_1", parts)]


@pytest.mark.parametrize("said", [None, 7, {"sun": True}, b"sun"], ids=["nothing", "number", "object", "bytes"])
async def test_an_output_that_is_neither_text_nor_a_list_is_the_tools_error(said):
    async def strange(_):
        return said

    script = Script([done(call("call_1"))])
    async with connected(script) as ws:
        events = rollout(ws, weather=strange)
        await anext(events)
        with pytest.raises(ExceptionGroup) as caught:
            await anext(events)
    (error,) = caught.value.exceptions
    assert isinstance(error, TypeError)
    assert f"tool 'weather' returned {type(said).__name__}" in str(error)
    assert len(script.received) == 1


@pytest.mark.parametrize(
    "end",
    [
        '{"type":"response.done"}',
        '{"type":"response.completed","response":[]}',
        '{"type":"response.completed","response":{"output":[]}}',
        '{"type":"response.completed","response":{"id":"r","output":[1]}}',
        '{"type":"response.completed","response":{"id":"r","output":[{"type":"function_call"}]}}',
        '{"type":"response.done","response":{"id":"r","output":[{"type":"function_call","call_id":"c","name":7}]}}',
    ],
)
async def test_an_end_that_makes_no_sense_is_an_error_of_ours_and_runs_nothing(end):
    async def never(_):
        raise AssertionError("should not run")

    async with connected(Script([end])) as ws:
        events = rollout(ws, weather=never)
        await anext(events)
        with pytest.raises(InvalidRequest):
            await anext(events)
        assert await collect(events) == []


async def test_an_item_without_a_proper_type_is_no_call():
    end = '{"type":"response.done","response":{"id":"r","output":[{"type":["function_call"]},{}]}}'
    async with connected(Script([end])) as ws:
        assert await collect(rollout(ws)) == [msgspec.json.decode(end)]


async def test_a_refused_append_comes_out_as_its_error_and_the_outputs_are_kept():
    async def look(_):
        return "sun"

    async with connected(Script([created(), done(call("call_1"))], [NOT_FOUND])) as ws:
        events = rollout(ws, weather=look)
        with pytest.raises(ApiError, match="not found"):
            await collect(events)
        assert events.outputs == [output("call_1", "sun")]
        assert await collect(events) == []
