"""Calls of MCP tools that the client has to approve: the turn ends, or the rollout is suspended, until it has."""

from __future__ import annotations

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, call, delay, step
from tests.support.hosts import FakeHost, check_turn, kinds, mcp
from tests.support.live import Frame, output, post, tool, user
from tests.support.spy import Spy

MODES = pytest.mark.parametrize("mode", list(Mode), ids=str)


@MODES
@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_waits_for_its_approval(serve, connect, mode: Mode, approve: bool) -> None:
    host, spy = FakeHost(), Spy(Script.of([call("srv.look", n=1), call("mine")], "end"))
    wire = await connect(await serve(engine=spy, hosts=[host], mode=mode))
    tools = [mcp(require_approval="always"), tool("mine")]
    frames = await wire.turn(input="go", tools=tools)
    first = frames[-1]["response"]
    _, asked, made = first["output"]
    assert asked == {
        "type": "mcp_approval_request",
        "id": asked["id"],
        "name": "look",
        "arguments": '{"n":1}',
        "server_label": "srv",
    }
    assert asked["id"].startswith("mcpr_")
    assert host.calls == []
    word: Frame = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve}
    if not approve:
        word["reason"] = "not today"
    given = [output(made, "mine ok"), word]
    if mode is Mode.PROTOTYPE:
        assert frames[-1]["required_input"] == [
            {"type": "mcp_approval_response", "approval_request_id": asked["id"]},
            {"type": "function_call_output", "call_id": made["call_id"], "name": "mine"},
        ]
        await wire.append(given)
        response = check_turn(frames + await wire.frames())
        made_then = response["output"][3:]
    else:
        check_turn(frames)
        response = check_turn(await wire.turn(input=given, tools=tools, previous_response_id=first["id"]))
        made_then = response["output"]
    assert [item["type"] for item in made_then] == (["mcp_call"] if approve else []) + ["message"]
    assert host.calls == ([("srv.look", '{"n":1}')] if approve else [])
    words = spy.contexts[1].split("\n")[5:]
    if approve:
        assert made_then[0]["approval_request_id"] == asked["id"]
        assert made_then[0]["output"] == 'srv.look got {"n":1}'
        assert words == [
            "tool mine: mine ok",
            'hosted srv.look: srv.look got {"n":1}',
        ]
    else:
        assert words == [
            "tool srv.look: The user has refused this call. not today",
            "tool mine: mine ok",
        ]


async def test_a_create_with_an_approval_that_a_suspended_rollout_waits_for_is_told_to_append(serve, connect) -> None:
    spy = Spy(Script.of(call("srv.look"), "end"))
    wire = await connect(await serve(engine=spy, hosts=[FakeHost()], mode=Mode.PROTOTYPE))
    tools = [mcp(require_approval="always")]
    asked = (await wire.turn(input="go", tools=tools))[-1]["response"]["output"][-1]
    given = [{"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}]
    assert (await wire.refused(input=given, tools=tools))["error"]["code"] == "response_suspended"
    await wire.append(given)
    assert kinds((await wire.frames())[-1]["response"])[-2:] == ["mcp_call", "message"]


async def test_an_approval_that_is_owed_must_come(serve, connect) -> None:
    wire = await connect(await serve(Script.of(call("srv.look"), "end"), hosts=[FakeHost()]))
    tools = [mcp(require_approval="always")]
    first = await wire.completed(input="go", tools=tools)
    refused = await wire.refused(input="on", tools=tools, previous_response_id=first["id"])
    assert refused["error"]["code"] == "no_tool_output_found"


async def test_approvals_that_are_sent_again_are_not_run_again(serve, connect) -> None:
    host, spy = FakeHost(), Spy(Script.of(call("srv.look"), "end", "more"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    tools = [mcp(require_approval="always")]
    first = await wire.completed(input=[user("go")], tools=tools)
    word = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    history = [user("go"), *first["output"], word]
    second = await wire.completed(input=history, tools=tools)
    assert len(host.calls) == 1
    chained = spy.context_ids[-1]
    history += [*second["output"], user("on")]
    await wire.completed(input=history, tools=tools)
    assert len(host.calls) == 1
    assert spy.context_ids[-1][: len(chained)] == chained


async def test_what_was_approved_runs_whatever_tool_choice_says(serve, connect) -> None:
    host = FakeHost()
    wire = await connect(await serve(Script.of(call("srv.look"), "end"), hosts=[host]))
    tools = [mcp(require_approval="always")]
    first = await wire.completed(input="go", tools=tools)
    word = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    fields: Frame = {"input": [word], "previous_response_id": first["id"], "tools": tools, "tool_choice": "none"}
    assert kinds(await wire.completed(**fields)) == ["mcp_call", "message"]
    assert host.calls == [("srv.look", "{}")]


async def test_an_approval_is_not_lost_in_a_warm_up(serve, connect) -> None:
    host = FakeHost()
    wire = await connect(await serve(Script.of(call("srv.look"), "end"), hosts=[host]))
    tools = [mcp(require_approval="always")]
    first = await wire.completed(input="go", tools=tools)
    word = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    refused = await wire.refused(input=[word], previous_response_id=first["id"], tools=tools, generate=False)
    assert refused["error"]["param"] == "input[0]"


async def test_an_approved_call_of_a_server_that_is_not_defined_any_more_fails(serve, connect) -> None:
    host, spy = FakeHost(), Spy(Script.of(call("srv.look"), "end"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    first = await wire.completed(input="go", tools=[mcp(require_approval="always")])
    word = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    second = await wire.completed(input=[word], previous_response_id=first["id"])
    assert second["output"][0]["status"] == "failed"
    assert spy.contexts[1].endswith("hosted srv.look: Error: The request defines no tools of 'srv'.")


async def test_a_stored_approval_is_run_on_another_connection(serve, connect) -> None:
    host = FakeHost()
    server = await serve(Script.of(call("srv.look", n=1), "end"), hosts=[host], limits={"kept_contexts": 0})
    tools = [mcp(require_approval="always")]
    first = await (await connect(server)).completed(input="go", tools=tools)
    word = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    answer = await post(server, input=[word], previous_response_id=first["id"], tools=tools)
    assert kinds(answer.json()) == ["mcp_call", "message"]
    assert host.calls == [("srv.look", '{"n":1}')]


async def test_steering_waits_for_an_approval_too(serve, connect) -> None:
    host = FakeHost()
    said = step(call("srv.look"), delay(0.1), "More.")
    wire = await connect(await serve(Script.of(said, "end"), hosts=[host]))
    await wire.create(input="go", tools=[mcp(require_approval="always")])
    frames = [await wire.frame()]
    while frames[-1].get("item", {}).get("type") != "mcp_approval_request":
        frames.append(await wire.frame())
    asked, target = frames[-1]["item"], frames[0]["response"]["id"]
    await wire.send({"type": "response.steer", "previous_response_id": target, "input": [user("also this")]})
    assert kinds((await wire.frames())[-1]["response"]) == ["mcp_list_tools", "mcp_approval_request", "message"]
    pending = await wire.frame()
    assert pending["type"] == "response.steer.pending"
    assert pending["required_input"] == [{"type": "mcp_approval_response", "approval_request_id": asked["id"]}]
