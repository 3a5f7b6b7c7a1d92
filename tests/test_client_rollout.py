"""The tool loop: what is run, what is sent on, and where it ends, in both designs."""

from __future__ import annotations

import msgspec
import pytest
import trio

from respserver.client import Client, Rollout, ToolNotFound, event_type
from respserver.config import Mode
from respserver.engines.sim import Script as Scripted
from respserver.engines.sim import call as scripted_call
from respserver.errors import InvalidRequest
from respserver.schema.events import ResponseCompleted, ResponseFailed, ResponseIncomplete
from respserver.schema.items import CustomToolCall
from tests.support.client_servers import (
    ANSWER,
    Script,
    call,
    collect,
    completed,
    connected,
    created,
    done,
    response,
    serving,
)
from tests.support.live import tool
from tests.support.spy import Spy


async def weather(arguments):
    """Tells the weather."""
    return f"sun over {arguments['city']}"


def weather_of(said):
    async def tell(_):
        return said

    return tell


def output(call_id, text="sun over Oslo", kind="function_call"):
    return {"type": f"{kind}_output", "call_id": call_id, "output": text}


async def test_in_the_shipped_design_outputs_go_into_a_new_response_on_top_of_the_last():
    script = Script(
        [created(), completed(call("call_1"))],
        [completed(call("call_2"), id="resp_2")],
        [completed(ANSWER, id="resp_3")],
    )
    async with serving(script.serve) as url:
        tools = [{"type": "function", "name": "weather"}]
        options = {"model": "sim", "tools": {"weather": weather}, "tool_definitions": tools, "store": False}
        async with Client(url).rollout("How is it?", **options) as events:
            assert [event_type(event) for event in await collect(events)] == [
                "response.created",
                "response.completed",
                "response.completed",
                "response.completed",
            ]
    same = {"type": "response.create", "model": "sim", "tools": tools, "store": False}
    assert script.received == [
        {**same, "input": "How is it?"},
        {**same, "input": [output("call_1")], "previous_response_id": "resp_1"},
        {**same, "input": [output("call_2")], "previous_response_id": "resp_2"},
    ]


async def test_in_the_prototype_design_outputs_are_appended_and_the_terminals_calls_are_not_run_again():
    runs = []

    async def counted(arguments):
        runs.append(arguments)
        return await weather(arguments)

    first, second = call("call_1"), call("call_2")
    script = Script([done(first)], [done(second)], [completed(first, second, ANSWER)])
    async with connected(script) as ws:
        events = await collect(Rollout(ws, "How is it?", model="sim", tools={"weather": counted}))
    assert events == [done(first), done(second), completed(first, second, ANSWER)]
    assert script.received[1:] == [
        {"type": "response.append", "input": [output("call_1")], "response_id": "resp_1"},
        {"type": "response.append", "input": [output("call_2")], "response_id": "resp_1"},
    ]
    assert runs == [{"city": "Oslo"}] * 2


async def test_tools_run_side_by_side_and_their_outputs_keep_the_order_of_the_calls():
    second_ran = trio.Event()

    async def wait_for_second(_):
        await second_ran.wait()
        return "first"

    async def run_second(_):
        second_ran.set()
        return "second"

    script = Script([completed(call("call_1", "a"), call("call_2", "b"))], [completed(ANSWER)])
    async with connected(script) as ws:
        await collect(Rollout(ws, "Both!", model="sim", tools={"a": wait_for_second, "b": run_second}))
    assert script.received[1]["input"] == [output("call_1", "first"), output("call_2", "second")]


async def test_custom_tools_and_namespaces_are_called_by_what_the_model_says():
    async def patch(arguments):
        return f"patched {arguments['input']}"

    custom = CustomToolCall(id="ctc_1", status="completed", call_id="call_1", name="patch", input="*** begin")
    script = Script([completed(custom, call("call_2", namespace="sky", arguments=""))], [completed(ANSWER)])

    async def look(arguments):
        return f"looked with {arguments}"

    async with connected(script) as ws:
        await collect(Rollout(ws, "Go.", model="sim", tools={"patch": patch, "sky.weather": look}))
    assert script.received[1]["input"] == [
        output("call_1", "patched *** begin", "custom_tool_call"),
        output("call_2", "looked with {}"),
    ]


async def test_tools_without_definitions_are_offered_as_functions_of_any_object():
    script = Script([completed(ANSWER)])
    async with connected(script) as ws:
        await collect(Rollout(ws, "Hi", model="sim", tools={"weather": weather}))
    assert script.received[0]["tools"] == [
        {
            "type": "function",
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": True},
            "strict": False,
        }
    ]


async def test_items_of_kinds_that_the_schema_does_not_have_do_not_stop_a_rollout():
    strange = msgspec.json.encode(completed(call("call_1"))).replace(b'"output":[', b'"output":[{"type":"hum"},')
    script = Script([strange.decode()], [completed(ANSWER, id="resp_2")])
    async with connected(script) as ws:
        events = await collect(Rollout(ws, "Hi", model="sim", tools={"weather": weather}))
    assert isinstance(events[0], dict)
    assert events[1] == completed(ANSWER, id="resp_2")


@pytest.mark.parametrize(
    "end",
    [
        ResponseFailed(response=response(output=[call("call_1")])),
        completed(msgspec.structs.replace(call("call_1"), status="incomplete")),
    ],
    ids=["failed", "cut-call"],
)
async def test_a_rollout_ends_where_nothing_can_be_answered(end):
    script = Script([end])
    async with connected(script) as ws:
        assert await collect(Rollout(ws, "Hi", model="sim", tools={"weather": weather})) == [end]
    assert len(script.received) == 1


async def test_the_history_has_what_a_cut_response_said():
    async with connected(Script([ResponseIncomplete(response=response(output=[ANSWER]))])) as ws:
        events = Rollout(ws, "Hi", model="sim", tools={})
        await collect(events)
    assert [item.get("content") and item.get("id") for item in events.history] == [None, "msg_1"]


async def test_a_call_of_an_unknown_tool_runs_none_of_its_siblings():
    async def never(_):
        raise AssertionError("should not run")

    script = Script([completed(call("call_1", "known"), call("call_2", "unknown"))])
    async with connected(script) as ws:
        events = Rollout(ws, "Hi", model="sim", tools={"known": never})
        await anext(events)
        with pytest.raises(ToolNotFound, match="'unknown'"):
            await anext(events)


async def test_arguments_that_are_no_json_object_are_an_error():
    script = Script([completed(call("call_1", arguments="[1"))])
    async with connected(script) as ws:
        events = Rollout(ws, "Hi", model="sim", tools={"weather": weather})
        await anext(events)
        with pytest.raises(InvalidRequest):
            await anext(events)


async def test_what_a_tool_raises_comes_out_in_a_group():
    async def broken(_):
        raise LookupError("no such city")

    script = Script([completed(call("call_1"))])
    async with connected(script) as ws:
        events = Rollout(ws, "Hi", model="sim", tools={"weather": broken})
        await anext(events)
        with pytest.raises(ExceptionGroup) as caught:
            await anext(events)
    assert isinstance(caught.value.exceptions[0], LookupError)


APPROVAL = '{"type":"mcp_approval_request","id":"mcpr_1","name":"add","arguments":"{}","server_label":"sums"}'


def asking(kind):
    """An end with a call and a request for approval, of a server that has hosted tools."""
    text = msgspec.json.encode(done(call("call_1")) if kind == "done" else completed(call("call_1"))).decode()
    return text.replace('"output":[', f'"output":[{APPROVAL},', 1)


@pytest.mark.parametrize("kind", ["done", "completed"])
@pytest.mark.parametrize("says", [True, False])
async def test_who_may_call_a_hosted_tool_is_asked_beside_the_tools(kind, says):
    asked, runs = trio.Event(), []

    async def approve(request):
        asked.set()
        return says and request["server_label"] == "sums"

    async def look(arguments):
        await asked.wait()
        runs.append(arguments)
        return "sun over Oslo"

    script = Script([asking(kind)], [completed(ANSWER, id="resp_2")])
    async with connected(script) as ws:
        await collect(Rollout(ws, "Go.", model="sim", tools={"weather": look}, approve=approve))
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": says}
    assert script.received[1]["input"] == [output("call_1"), answer]
    assert len(runs) == 1


@pytest.mark.parametrize("kind", ["done", "completed"])
async def test_a_rollout_ends_where_approval_is_asked_for_and_nobody_can_give_it(kind):
    async def never(_):
        raise AssertionError("should not run")

    script = Script([asking(kind)])
    async with connected(script) as ws:
        assert len(await collect(Rollout(ws, "Go.", model="sim", tools={"weather": never}))) == 1
    assert len(script.received) == 1


@pytest.mark.parametrize(("mode", "steps"), [(Mode.SHIPPED, 2), (Mode.PROTOTYPE, 3)])
async def test_the_output_of_an_async_call_comes_with_the_next_create(serve, mode, steps):
    spy = Spy(Scripted.of([scripted_call("later"), scripted_call("look")], "noted", "all told"))
    server = await serve(engine=spy, mode=mode)
    definitions = [tool("look"), {**tool("later"), "async": True}]
    tools = {"look": weather_of("now"), "later": weather_of("late")}
    async with Client(server.base_url) as client:
        events = await collect(client.rollout("go", model="sim", tools=tools, tool_definitions=definitions))
    assert isinstance(events[-1], ResponseCompleted)
    assert sorted(line for line in spy.contexts[-1].splitlines() if line.startswith("tool ")) == [
        "tool later: late",
        "tool look: now",
    ]
    assert server.metrics.turns == 2
    assert len(spy.contexts) == steps


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_rollout_may_have_a_lane_of_its_own(serve, mode):
    server = await serve(Scripted.of(scripted_call("look"), "end"), mode=mode)
    async with Client(server.base_url) as client:
        rollout = client.rollout("go", model="sim", tools={"look": weather_of("now")}, stream_id="mine")
        assert isinstance((await collect(rollout))[-1], ResponseCompleted)
