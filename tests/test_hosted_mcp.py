"""Rollouts that call a real MCP server, in both modes and over each transport, with servers of both protocols."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from respserver.config import Config, Limits, Mode
from respserver.embed import open_server
from respserver.engines.sim import Script, call
from respserver.engines.sim.script import Output
from tests.support.hosts import check_turn, kinds
from tests.support.live import PATIENCE, Frame, Wire, ask, calls_of, output, post, text_of, tool
from tests.support.mcp_kit import Answer, FakeServer, result
from tests.support.mcp_server import McpProcess
from tests.support.sdk import check_response
from tests.support.spy import Spy

pytestmark = pytest.mark.slow  # the first test waits for the servers to start
MODES = pytest.mark.parametrize("mode", list(Mode), ids=str)
TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
SECRETS = ("t0ken", "hush", "quiet")
# Any in this file: JSON, and the fixtures' functions.


def mcp(url: str, **fields: Any) -> Frame:
    return {"type": "mcp", "server_label": "harbour", "server_url": url, "require_approval": "never", **fields}


def named(response: Frame, name: str) -> Frame:
    """The call of an MCP tool."""
    return next(item for item in response["output"] if item["type"] == "mcp_call" and item["name"] == name)


@MODES
@TRANSPORTS
async def test_the_model_reads_what_the_server_said(
    serve: Any, connect: Any, harbour: McpProcess, mode: Mode, transport: str
) -> None:
    spy = Spy(Script.of(call("harbour.add", a=2, b=3), call("harbour.tide", place="Oslo"), "So: {last_tool_output}"))
    server = await serve(engine=spy, mode=mode, mcp_allow=(harbour.host,))
    answer = await ask(server, await connect(server), transport, input="go", tools=[mcp(harbour.url)])
    response = answer["response"]
    check_response(response)
    assert response["status"] == "completed"
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert text_of(response) == "So: High water at Oslo: 06:12."
    listing, added, _, _ = response["output"]
    assert (added["output"], added["error"], added["status"]) == ("5", None, "completed")
    assert [one["name"] for one in listing["tools"]][:2] == ["add", "tide"]
    assert listing["tools"][1]["annotations"] == {"readOnlyHint": True}
    assert "hosted harbour.add: 5" in spy.contexts[-1]


@MODES
async def test_a_connection_lists_once_and_keeps_one_session(
    serve: Any, connect: Any, old_harbour: McpProcess, mode: Mode
) -> None:
    old_harbour.log()
    steps: list[str | Output] = [call("harbour.count"), "{last_tool_output}"]
    server = await serve(Script.of(*steps * 3), mode=mode, mcp_allow=(old_harbour.host,))
    wire: Wire = await connect(server)
    previous: dict[str, str] = {}
    said = []
    for _ in range(3):
        response = check_turn(await wire.turn(input="go", tools=[mcp(old_harbour.url)], **previous))
        previous = {"previous_response_id": response["id"]}
        said.append((kinds(response), text_of(response)))
    calls = ["mcp_call", "message"]
    assert said == [(["mcp_list_tools", *calls], "1"), (calls, "2"), (calls, "3")]
    asked = [method for _, method, _ in old_harbour.log()]
    assert (asked.count("initialize"), asked.count("tools/list"), asked.count("tools/call")) == (1, 1, 3)


async def test_the_session_ends_with_the_connection(serve: Any, connect: Any, old_harbour: McpProcess) -> None:
    server = await serve(Script.of(call("harbour.count"), "end"), mcp_allow=(old_harbour.host,))
    wire: Wire = await connect(server)
    await wire.completed(input="go", tools=[mcp(old_harbour.url)])
    old_harbour.log()
    await wire.socket.aclose()
    await logged(old_harbour, ["DELETE", ""])


async def logged(harbour: McpProcess, expected: list[str]) -> None:
    """Until the server was asked this."""
    seen: list[list[str]] = []
    with trio.fail_after(PATIENCE):
        while expected not in [entry[:2] for entry in seen]:
            seen += harbour.log()
            await trio.sleep(0.01)


@MODES
async def test_server_calls_and_client_calls_of_one_step_are_both_made(
    serve: Any, connect: Any, harbour: McpProcess, mode: Mode
) -> None:
    spy = Spy(
        Script.of([call("mine", n=1), call("harbour.add", a=1, b=1), call("harbour.tide", place="Bergen")], "end")
    )
    server = await serve(engine=spy, mode=mode, mcp_allow=(harbour.host,))
    wire: Wire = await connect(server)
    tools = [mcp(harbour.url), tool("mine")]
    frames = await wire.turn(input="go", tools=tools)
    first = frames[-1]["response"]
    assert kinds(first) == ["mcp_list_tools", "function_call", "mcp_call", "mcp_call"]
    assert [named(first, name)["output"] for name in ("add", "tide")] == ["2", "High water at Bergen: 06:12."]
    (mine,) = calls_of(first)
    if mode is Mode.PROTOTYPE:
        assert frames[-1]["type"] == "response.done"
        await wire.append([output(mine, "ok")])
        response = check_turn(frames + await wire.frames())
    else:
        response = check_turn(await wire.turn(input=[output(mine)], tools=tools, previous_response_id=first["id"]))
    assert text_of(response) == "end"
    assert "hosted harbour.add: 2" in spy.contexts[1]


@MODES
async def test_approval_is_asked_for_and_the_server_called_once_it_is_given(
    serve: Any, connect: Any, harbour: McpProcess, mode: Mode
) -> None:
    script = Script.of([call("harbour.tide", place="Oslo"), call("harbour.add", a=1, b=2)], "end")
    server = await serve(script, mode=mode, mcp_allow=(harbour.host,))
    wire: Wire = await connect(server)
    tools = [mcp(harbour.url, require_approval={"never": {"read_only": True}})]
    frames = await wire.turn(input="go", tools=tools)
    first = frames[-1]["response"]
    assert kinds(first) == ["mcp_list_tools", "mcp_call", "mcp_approval_request"]
    assert "tools/call" in [method for _, method, _ in harbour.log()]
    word = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    if mode is Mode.PROTOTYPE:
        await wire.append([word])
        response = check_turn(frames + await wire.frames())
    else:
        response = check_turn(await wire.turn(input=[word], tools=tools, previous_response_id=first["id"]))
    made = named(response, "add")
    assert (made["output"], made["approval_request_id"]) == ("3", word["approval_request_id"])
    assert text_of(response) == "end"


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("failing", {}, "Error executing tool failing"),
        ("needs_args", {"times": 2}, "Field required"),
        ("unknown", {}, "there is no tool 'harbour.unknown'"),
        ("slow", {"seconds": 30}, "within 0.3 seconds"),
    ],
)
@MODES
async def test_a_call_that_fails_is_an_item_that_says_why_and_the_model_goes_on(
    serve: Any, connect: Any, harbour: McpProcess, mode: Mode, name: str, arguments: Frame, problem: str
) -> None:
    script = Script.of(call(f"harbour.{name}", **arguments), "{last_tool_output}")
    limits = {"hosted_seconds": 0.3} if name == "slow" else {}
    server = await serve(script, mode=mode, mcp_allow=(harbour.host,), limits=limits)
    response = check_turn(await (await connect(server)).turn(input="go", tools=[mcp(harbour.url)]))
    made = named(response, name)
    assert (made["status"], made["output"]) == ("failed", None)
    assert problem in made["error"]["content"][0]["text"]
    assert problem in text_of(response)
    assert response["status"] == "completed"


@TRANSPORTS
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer(b"no", 401), "status 401"),
        (Answer(b"<html>", type="text/html"), "no JSON-RPC message"),
        (Answer(status=308, headers={"location": "http://127.0.0.1:1/"}), "redirects are not followed"),
        (Answer(hangs=True), "within 0.2 seconds"),
    ],
    ids=["401", "page", "redirect", "silence"],
)
async def test_a_server_whose_tools_cannot_be_listed_is_an_item_that_says_why(
    serve: Any, connect: Any, transport: str, answer: Answer, problem: str
) -> None:
    async with FakeServer(tools_list=answer).served() as url:
        limits = {"mcp_list_seconds": 0.2} if answer.hangs else {}
        server = await serve(Script.of("I have no tools."), mcp_allow=("127.0.0.1",), limits=limits)
        response = (await ask(server, await connect(server), transport, input="go", tools=[mcp(url)]))["response"]
    check_response(response)
    assert kinds(response) == ["mcp_list_tools", "message"]
    assert response["output"][0]["tools"] == []
    assert problem in response["output"][0]["error"]
    assert response["status"] == "completed"


@TRANSPORTS
@pytest.mark.parametrize("allow", [(), ("other.test",), ("*",)], ids=str)
async def test_a_host_that_is_not_allowed_is_a_refusal(
    serve: Any, connect: Any, harbour: McpProcess, allow: tuple[str, ...], transport: str
) -> None:
    server = await serve(mcp_allow=allow)
    tools = [tool("mine"), mcp(harbour.url)]
    refused = await ask(server, await connect(server), transport, input="go", tools=tools)
    assert (refused["status"], refused["error"]["param"]) == (400, "tools[1].server_url")
    assert "--mcp-allow" in refused["error"]["message"]
    assert harbour.log() == []


async def test_a_private_address_behind_a_public_name_is_an_item_that_says_why(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("end"), mcp_allow=("*",))
    response = await (await connect(server)).completed(input="go", tools=[mcp("https://127.0.0.1:9/mcp")])
    assert "is not public" in response["output"][0]["error"]


async def test_what_opens_the_server_is_sent_to_it_and_to_nobody_else(
    serve: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeServer(tools_call=Answer(status=500))
    spy = Spy(Script.of(call("harbour.tide"), "{last_tool_output}"))
    async with fake.served() as url:
        server = await serve(engine=spy, mcp_allow=("127.0.0.1",))
        wire: Wire = await connect(server)
        frames = await wire.turn(
            input="go", tools=[mcp(f"{url}?key=quiet", authorization="t0ken", headers={"X-Key": "hush"})]
        )
        fetched = (await post(server, input="on", previous_response_id=frames[-1]["response"]["id"])).json()
    assert all(head["authorization"] == "Bearer t0ken" and head["x-key"] == "hush" for head in fake.heads)
    shown = json.dumps([frames, fetched, spy.contexts]) + " ".join(str(record.__dict__) for record in caplog.records)
    assert not [secret for secret in SECRETS if secret in shown]
    assert "status 500" in text_of(frames[-1]["response"])


@MODES
async def test_a_client_that_goes_in_the_middle_of_a_call_ends_it(
    serve: Any, connect: Any, old_harbour: McpProcess, mode: Mode
) -> None:
    server = await serve(Script.of(call("harbour.slow", seconds=30), "end"), mode=mode, mcp_allow=(old_harbour.host,))
    wire: Wire = await connect(server)
    old_harbour.log()
    await wire.create(input="go", tools=[mcp(old_harbour.url)])
    while (await wire.frame())["type"] != "response.mcp_call_arguments.done":
        pass
    await logged(old_harbour, ["POST", "tools/call"])
    await wire.socket.aclose()
    await logged(old_harbour, ["POST", "notifications/cancelled"])


async def test_a_server_that_ends_does_not_wait_for_a_call(connect: Any, harbour: McpProcess) -> None:
    config = Config(port=0, mcp_allow=(harbour.host,), limits=Limits(grace_seconds=0.1))
    with trio.fail_after(PATIENCE):
        async with open_server(config, script=Script.of(call("harbour.slow", seconds=30))) as server:
            wire: Wire = await connect(server)
            await wire.create(input="go", tools=[mcp(harbour.url)])
            while (await wire.frame())["type"] != "response.mcp_call_arguments.done":
                pass
            await logged(harbour, ["POST", "tools/call"])
        assert (await wire.frames())[-1]["type"] in ("response.failed", "response.incomplete")


async def test_many_requests_may_call_at_once(serve: Any, connect: Any, harbour: McpProcess) -> None:
    steps: list[str | Output] = [call("harbour.slow", seconds=0.2), "end"]
    server = await serve(Script.of(*steps * 4), mcp_allow=(harbour.host,))
    responses: list[Frame] = []

    async def turn() -> None:
        responses.append((await post(server, input="go", tools=[mcp(harbour.url)])).json())

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(turn)
    assert [response["status"] for response in responses] == ["completed"] * 4


@TRANSPORTS
async def test_two_servers_under_two_labels(serve: Any, connect: Any, new_harbour: McpProcess, transport: str) -> None:
    fake = FakeServer(tools_call=result(content=[{"type": "text", "text": "low"}]))
    script = Script.of([call("harbour.tide", place="Oslo"), call("lake.tide")], "end")
    async with fake.served() as url:
        server = await serve(script, mcp_allow=("127.0.0.1",))
        tools = [mcp(new_harbour.url), mcp(url, server_label="lake")]
        response = (await ask(server, await connect(server), transport, input="go", tools=tools))["response"]
        same = await ask(server, await connect(server), transport, input="go", tools=[tools[0], tools[0]])
    assert kinds(response) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [item["output"] for item in response["output"][2:4]] == ["High water at Oslo: 06:12.", "low"]
    assert (same["status"], same["error"]["param"]) == (400, "tools[1].server_label")
