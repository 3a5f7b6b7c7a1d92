"""Tools that the server runs itself: the loop stops, the tool runs, its output stands behind its call, and sampling
goes on. In both modes, over each transport."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from respserver.config import Mode, RouteConfig
from respserver.engines.sim import Script, call, custom, reasoning, step
from respserver.tools.search import SearchHost
from respserver.turn.toolboxes import MAX_SERVED
from tests.support.hosts import FakeHost, Library, check_turn, kinds, mcp
from tests.support.live import Frame, ask, calls_of, output, post, text_of, tool, user
from tests.support.sdk import check_response
from tests.support.spy import Spy

MODES = pytest.mark.parametrize("mode", list(Mode), ids=str)
TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
LISTED = "tools: srv.look, srv.add, srv.fail"


@MODES
@TRANSPORTS
async def test_a_hosted_call_is_run_and_the_model_goes_on(serve, connect, mode: Mode, transport: str) -> None:
    host, spy = FakeHost(), Spy(Script.of(call("srv.look", n=1), "It said {last_tool_output}"))
    server = await serve(engine=spy, hosts=[host], mode=mode)
    answer = await ask(server, await connect(server), transport, input="go", tools=[mcp()])
    response = answer["response"]
    assert response["status"] == "completed"
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert text_of(response) == 'It said srv.look got {"n":1}'
    listing, made, _ = response["output"]
    assert listing["server_label"] == made["server_label"] == "srv"
    assert [one["name"] for one in listing["tools"]] == ["look", "add", "fail"]
    assert (made["name"], made["arguments"], made["output"]) == ("look", '{"n":1}', 'srv.look got {"n":1}')
    assert (made["status"], made["error"], made["approval_request_id"]) == ("completed", None, None)
    assert spy.contexts == [
        f"user: go\n{LISTED}",
        f'user: go\n{LISTED}\ncall srv.look: {{"n":1}}\nhosted srv.look: srv.look got {{"n":1}}',
    ]
    check_response(response)


async def test_the_events_of_a_hosted_call(serve, connect) -> None:
    server = await serve(Script.of(call("srv.look"), "done"), hosts=[FakeHost()])
    frames = await (await connect(server)).turn(input="go", tools=[mcp()])
    check_turn(frames)
    assert [frame["type"].removeprefix("response.") for frame in frames][2:14] == [
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
    ]
    assert frames[6]["item"]["status"] == "in_progress"
    assert frames[9]["arguments"] == "{}"
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))


@MODES
async def test_calls_side_by_side_run_at_once_and_each_output_stands_behind_its_call(
    serve, connect, mode: Mode
) -> None:
    host = FakeHost()
    host.gates["srv.look"] = trio.Event()
    spy = Spy(Script.of([reasoning("hm"), call("srv.look"), "So.", call("srv.add", n=2), "Then."], "end"))
    wire = await connect(await serve(engine=spy, hosts=[host], mode=mode))
    await wire.create(input="go", tools=[mcp()])
    with trio.fail_after(5):
        while len(host.running) < 2 and not host.calls[1:]:
            await trio.sleep(0.001)
    host.gates["srv.look"].set()
    response = check_turn(await wire.frames())
    assert host.most_running == 2
    assert kinds(response) == ["mcp_list_tools", "reasoning", "mcp_call", "message", "mcp_call", "message", "message"]
    assert spy.contexts[1].split("\n")[2:] == [
        "assistantthink: hm",
        "call srv.look: {}",
        "hosted srv.look: srv.look got {}",
        "assistant: So.",
        'call srv.add: {"n":2}',
        'hosted srv.add: srv.add got {"n":2}',
        "assistant: Then.",
    ]


TOOLS = [mcp(), tool("mine"), {"type": "custom", "name": "exec"}]
MIXED = Script.of([call("mine", x=1), call("srv.look"), custom("exec", "ls")], "end")


async def test_hosted_calls_run_before_a_shipped_turn_ends_for_the_clients(serve, connect) -> None:
    spy = Spy(MIXED)
    wire = await connect(await serve(engine=spy, hosts=[FakeHost()]))
    first = check_turn(await wire.turn(input="go", tools=TOOLS))
    assert kinds(first) == ["mcp_list_tools", "function_call", "mcp_call", "custom_tool_call"]
    outputs = [output(one, "mine ok") for one in calls_of(first)]
    second = await wire.completed(input=outputs, previous_response_id=first["id"], tools=TOOLS)
    assert kinds(second) == ["message"]
    assert spy.contexts[1].split("\n")[-5:] == [
        "call srv.look: {}",
        "hosted srv.look: srv.look got {}",
        "custom exec: ls",
        "tool mine: mine ok",
        "tool exec: mine ok",
    ]


async def test_hosted_calls_run_before_a_rollout_suspends_for_the_clients(serve, connect) -> None:
    spy, host = Spy(MIXED), FakeHost()
    wire = await connect(await serve(engine=spy, hosts=[host], mode=Mode.PROTOTYPE))
    frames = await wire.turn(input="go", tools=TOOLS)
    done = frames[-1]
    assert done["type"] == "response.done"
    assert [stub["type"] for stub in done["required_input"]] == ["function_call_output", "custom_tool_call_output"]
    assert [item["status"] for item in done["response"]["output"][1:]] == ["completed"] * 3
    await wire.append([output(one, "mine ok") for one in calls_of(done["response"])])
    response = check_turn(frames + await wire.frames())
    assert kinds(response) == ["mcp_list_tools", "function_call", "mcp_call", "custom_tool_call", "message"]
    assert spy.contexts[1].endswith("custom exec: ls\ntool mine: mine ok\ntool exec: mine ok")


async def test_tools_are_listed_once_in_a_chain_and_opened_once_a_connection(serve, connect) -> None:
    host = FakeHost()
    server = await serve(Script.of("one", "two", "three"), hosts=[host])
    wire = await connect(server)
    first = await wire.completed(input="go", tools=[mcp()])
    second = await wire.completed(input="on", tools=[mcp()], previous_response_id=first["id"])
    assert kinds(second) == ["message"]
    other = await connect(server)
    third = await other.completed(input="on", tools=[mcp()], previous_response_id=first["id"])
    assert kinds(third) == ["message"]
    assert kinds(await other.completed(input="go", tools=[mcp()])) == ["mcp_list_tools", "message"]
    assert (host.opened, host.closed) == (2, 0)
    resent = [user("go"), *first["output"], user("on")]
    assert kinds(await other.completed(input=resent, tools=[mcp()])) == ["message"]


async def test_failures_are_items_and_texts_for_the_model(serve, connect) -> None:
    host = FakeHost()
    host.names = (*host.names, "crash")
    said = [call("srv.fail"), call("srv.crash"), call("srv.unknown", n=1)]
    spy = Spy(Script.of(said, "end"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    frames = await wire.turn(input="go", tools=[mcp()])
    response = check_turn(frames)
    assert response["status"] == "completed"
    fail, crash, unknown = response["output"][1:4]
    assert fail["error"] == {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "it broke"}]}
    assert (fail["status"], fail["output"], crash["status"]) == ("failed", None, "failed")
    assert unknown["output"] == 'srv.unknown got {"n":1}'
    assert [frame["type"] for frame in frames].count("response.mcp_call.failed") == 2
    assert "hosted srv.fail: Error: it broke\n" in spy.contexts[1]
    assert "hosted srv.crash: Error: The tool failed.\n" in spy.contexts[1]


async def test_a_server_that_cannot_list_is_a_failed_item_and_its_calls_fail(serve, connect) -> None:
    host = FakeHost()
    host.down = "The server is not there."
    wire = await connect(await serve(Script.of(call("srv.look"), "end", "again"), hosts=[host]))
    frames = await wire.turn(input="go", tools=[mcp()])
    response = check_turn(frames)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    listing, made, _ = response["output"]
    assert (listing["error"], listing["tools"]) == ("The server is not there.", [])
    assert made["error"]["content"][0]["text"] == "The server is not there."
    assert "response.mcp_list_tools.failed" in [frame["type"] for frame in frames]
    host.down = None  # the next turn of the chain asks again
    again = await wire.completed(input="on", tools=[mcp()], previous_response_id=response["id"])
    assert kinds(again) == ["mcp_list_tools", "message"]


async def test_a_slow_tool_has_a_deadline(serve, connect) -> None:
    host = FakeHost()
    host.gates["srv.look"] = trio.Event()
    spy = Spy(Script.of([call("srv.look"), call("srv.add")], "end"))
    wire = await connect(await serve(engine=spy, hosts=[host], limits={"hosted_seconds": 0.05}))
    response = await wire.completed(input="go", tools=[mcp()])
    assert [item["status"] for item in response["output"][1:]] == ["failed", "completed", "completed"]
    assert "hosted srv.look: Error: The tool gave no result within 0.05 seconds." in spy.contexts[1]
    assert not host.running


async def test_max_tool_calls_bounds_what_is_run_and_the_model_is_told(serve, connect) -> None:
    host, spy = FakeHost(), Spy(Script.of([call("srv.look"), call("srv.add"), call("srv.look")], "end"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    response = await wire.completed(input="go", tools=[mcp()], max_tool_calls=2)
    assert [item.get("status") for item in response["output"]] == [
        None,
        "completed",
        "completed",
        "failed",
        "completed",
    ]
    assert len(host.calls) == 2
    assert "This call was not run: a response may make 2 calls." in spy.contexts[1]


async def test_several_calls_of_one_run_that_are_too_many_still_leave_the_model_its_answer(serve, connect) -> None:
    host = FakeHost()
    script = Script.of([call("srv.look", n=1), call("srv.look", n=2), call("srv.look", n=3)], "the answer")
    response = await (await connect(await serve(script, hosts=[host]))).completed(
        input="go", tools=[mcp()], max_tool_calls=1
    )
    assert kinds(response) == ["mcp_list_tools", *["mcp_call"] * 3, "message"]
    assert (len(host.calls), text_of(response)) == (1, "the answer")


async def test_a_model_that_goes_on_calling_comes_to_an_end(serve, connect) -> None:
    host = FakeHost()
    wire = await connect(
        await serve(Script.of(call("srv.look"), on_end="repeat"), hosts=[host], limits={"hosted_calls": 3})
    )
    response = await wire.completed(input="go", tools=[mcp()])
    assert kinds(response) == ["mcp_list_tools", *["mcp_call"] * 5]
    assert len(host.calls) == 3


@pytest.mark.parametrize(
    "choice",
    [
        "none",
        {"type": "function", "name": "mine"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "srv", "name": "add"}]},
    ],
    ids=["none", "another", "one of them"],
)
async def test_what_tool_choice_leaves_out_is_not_run(serve, connect, choice: Any) -> None:
    host = FakeHost()
    wire = await connect(await serve(Script.of(call("srv.look"), "end"), hosts=[host]))
    response = await wire.completed(input="go", tools=[mcp(), tool("mine")], tool_choice=choice)
    assert response["output"][1]["status"] == "failed"
    assert host.calls == []


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "mcp", "server_label": "srv"}, {"type": "mcp", "server_label": "srv", "name": "look"}],
)
async def test_tool_choice_may_demand_a_hosted_call(serve, connect, choice: Any) -> None:
    host = FakeHost()
    wire = await connect(await serve(hosts=[host]))  # rehearsing
    response = await wire.completed(input="go", tools=[mcp()], tool_choice=choice)
    assert [name for name, _ in host.calls] == ["srv.look"]
    assert response["status"] == "completed"


async def test_a_cut_runs_nothing(serve, connect) -> None:
    host, spy = FakeHost(), Spy(Script.of([call("srv.look"), "x " * 200], "end"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    frames = await wire.turn(input="go", tools=[mcp()], max_output_tokens=40)
    response = check_turn(frames)
    assert response["status"] == "incomplete"
    assert [item.get("status") for item in response["output"]] == [None, "incomplete", "incomplete"]
    assert host.calls == []
    await wire.completed(input="on", tools=[mcp()], previous_response_id=response["id"])
    assert "call srv.look: {}\nassistant: x x" in spy.contexts[1]


async def test_a_host_that_may_not_be_asked_is_refused_by_its_place(serve, connect) -> None:
    server = await serve(Script.of("x"), hosts=[FakeHost()])
    wire = await connect(server)
    refused = await wire.refused(input="go", tools=[tool(), mcp(server_url="https://forbidden.test")])
    assert (refused["status"], refused["error"]["param"]) == (400, "tools[1].server_url")
    twice = await post(server, input="go", tools=[mcp(), mcp()])
    assert (twice.status_code, twice.json()["error"]["param"]) == (400, "tools[1].server_label")


async def test_usage_counts_each_runs_input_once(serve, connect) -> None:
    spy = Spy(Script.of([call("srv.look"), "So."], call("srv.add"), "end", "more"))
    wire = await connect(await serve(engine=spy, hosts=[FakeHost()]))
    response = await wire.completed(input="go", tools=[mcp()])
    contexts = [len(ids) for ids in spy.context_ids]
    usage = response["usage"]
    assert usage["input_tokens"] == sum(contexts)
    assert usage["output_tokens"] == spy.sampled_tokens
    assert usage["input_tokens_details"]["cached_tokens"] > 0
    following = await wire.completed(input="on", tools=[mcp()], previous_response_id=response["id"], tool_choice="none")
    assert following["usage"]["input_tokens_details"]["cached_tokens"] > contexts[-1]


async def test_parallel_tool_calls_off_makes_one_call_a_run(serve, connect) -> None:
    host = FakeHost()
    spy = Spy(Script.of([call("srv.look"), call("srv.add")], "end"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    response = await wire.completed(input="go", tools=[mcp()], parallel_tool_calls=False)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]


async def test_secrets_of_a_definition_are_nowhere_to_be_read(serve, connect) -> None:
    spy = Spy(Script.of("x"))
    wire = await connect(await serve(engine=spy, hosts=[FakeHost()]))
    secret = mcp(headers={"x-key": "hush"}, authorization="hush")
    response = await wire.completed(input="go", tools=[secret, tool()])
    assert "hush" not in str(response)
    assert response["tools"][0]["headers"] is None
    assert "hush" not in spy.contexts[0]


async def test_steering_input_waits_for_the_tools(serve, connect) -> None:
    host = FakeHost()
    host.gates["srv.look"] = trio.Event()
    spy = Spy(Script.of(call("srv.look"), "end"))
    wire = await connect(await serve(engine=spy, hosts=[host]))
    await wire.create(input="go", tools=[mcp()])
    created = await wire.frame()
    with trio.fail_after(5):
        while not host.running:
            await trio.sleep(0.001)
    await wire.send(
        {"type": "response.steer", "previous_response_id": created["response"]["id"], "input": [user("stop")]}
    )
    frames = [await wire.frame()]
    while frames[-1]["type"] != "response.steer.accepted":
        frames.append(await wire.frame())
    host.gates["srv.look"].set()
    frames = await wire.frames()
    assert frames[-1]["type"] == "response.incomplete"
    assert frames[-1]["response"]["output"][-1]["status"] == "completed"
    successor = (await wire.frames())[-1]["response"]
    assert kinds(successor) == ["message"]
    assert spy.contexts[-1].endswith("hosted srv.look: srv.look got {}\nuser: stop")


async def test_a_paced_call_is_held_back_token_by_token(serve, connect) -> None:
    """Batches of one id each: what comes behind the call is held back just the same."""
    said = step(call("srv.look"), "So it is.", call("srv.add"), tps=100_000)
    spy = Spy(Script.of(said, "end"))
    wire = await connect(await serve(engine=spy, hosts=[FakeHost()]))
    await wire.completed(input="go", tools=[mcp()])
    assert spy.contexts[1].split("\n")[2:] == [
        "call srv.look: {}",
        "hosted srv.look: srv.look got {}",
        "assistant: So it is.",
        "call srv.add: {}",
        "hosted srv.add: srv.add got {}",
    ]


@pytest.mark.parametrize("mode", list(Mode), ids=str)
async def test_a_window_is_cut_around_hosted_calls_too(serve, connect, mode: Mode) -> None:
    spy = Spy(Script.of([call("srv.look"), "So."], "one", [call("srv.add"), "Then."], "two"))
    routes = (RouteConfig(pattern="*", context_window=400),)
    wire = await connect(await serve(engine=spy, hosts=[FakeHost()], mode=mode, routes=routes))
    fields: Frame = {"tools": [mcp()], "truncation": "auto"}
    first = await wire.completed(input="long " * 150, **fields)
    second = check_turn(await wire.turn(input="short " * 100, previous_response_id=first["id"], **fields))
    assert kinds(second) == ["mcp_call", "message", "message"]
    assert "long" not in spy.contexts[-1]
    assert spy.contexts[-1].startswith(LISTED)
    assert spy.contexts[-1].endswith("call srv.add: {}\nhosted srv.add: srv.add got {}\nassistant: Then.")
    assert spy.sequences_open - spy.closed <= 1


async def test_a_request_may_not_open_any_number_of_servers(serve, connect) -> None:
    host = FakeHost()
    wire = await connect(await serve(Script.of("end"), hosts=[host]))
    tools = [mcp(f"srv{number}") for number in range(MAX_SERVED + 1)]
    refusal = await wire.refused(input="go", tools=tools)
    assert refusal["error"]["param"] == f"tools[{MAX_SERVED}]"
    assert host.opened == 0
    await wire.completed(input="go", tools=tools[:-1])
    assert host.opened == MAX_SERVED


@pytest.mark.parametrize(
    "tools",
    [
        [mcp(), {"type": "namespace", "name": "srv", "tools": [tool("mine")]}],
        [{"type": "web_search"}, tool("web_search")],
    ],
    ids=["label", "search"],
)
async def test_a_name_is_the_clients_or_the_servers(serve, connect, tools: Any) -> None:
    served = await connect(await serve(Script.of("end"), hosts=[FakeHost(), SearchHost(Library())]))
    assert (await served.refused(input="go", tools=tools))["error"]["param"] == "tools"
    await served.completed(input="go", tools=tools[1:])
