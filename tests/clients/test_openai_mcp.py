"""OpenAI's Python SDK has respserver call a real MCP server: plain, streamed, with approvals, over WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from respserver.config import Config, Limits, Mode
from respserver.embed import RunningServer, start_server
from respserver.engines.sim import Script, call, conversation
from respserver.engines.sim.script import Output
from tests.clients.openai_kit import async_sdk, sdk
from tests.support.mcp_server import McpProcess

pytestmark = [pytest.mark.client, pytest.mark.slow]
# Any in this file: the SDK's own dictionaries and unions.

STEPS: list[str | Output] = [call("harbour.tide", place="Oslo"), call("harbour.add", a=1, b=2)]
SCRIPT = Script(conversations=(conversation(STEPS, "Read: {last_tool_output}", model="mcp"),))


@pytest.fixture(scope="module", params=list(Mode), ids=str)
def server(request: pytest.FixtureRequest, new_harbour: McpProcess) -> Iterator[RunningServer]:
    config = Config(port=0, mode=request.param, mcp_allow=(new_harbour.host,), limits=Limits(grace_seconds=0.0))
    with start_server(config, script=SCRIPT) as running:
        yield running


def harbour(server: McpProcess, **fields: Any) -> Any:
    return {"type": "mcp", "server_label": "harbour", "server_url": server.url, "require_approval": "never", **fields}


def test_a_plain_create_has_the_calls_and_the_answer(server: RunningServer, new_harbour: McpProcess) -> None:
    with sdk(server) as client:
        response = client.responses.create(model="mcp", input="hi", tools=[harbour(new_harbour)])
    listing, tide, added, _ = response.output
    assert listing.type == "mcp_list_tools"
    assert [tool.name for tool in listing.tools][:2] == ["add", "tide"]
    assert tide.type == added.type == "mcp_call"
    assert (tide.output, added.output) == ("High water at Oslo: 06:12.", "3")
    assert response.output_text == "Read: 3"


def test_a_stream_is_gathered_to_the_same(server: RunningServer, new_harbour: McpProcess) -> None:
    seen: list[str] = []
    with (
        sdk(server) as client,
        client.responses.stream(model="mcp", input="hi", tools=[harbour(new_harbour)]) as stream,
    ):
        seen += [event.type for event in stream]
        response = stream.get_final_response()
    assert [item.type for item in response.output] == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [kind for kind in seen if "mcp" in kind][:2] == [
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
    ]
    assert seen.count("response.mcp_call.completed") == 2


def test_an_approval_is_asked_for_and_given(server: RunningServer, new_harbour: McpProcess) -> None:
    tools = [harbour(new_harbour, require_approval={"never": {"tool_names": ["tide"]}})]
    with sdk(server) as client:
        first = client.responses.create(model="mcp", input="hi", tools=tools)
        asked = first.output[-1]
        assert asked.type == "mcp_approval_request"
        assert (asked.name, asked.arguments) == ("add", '{"a":1,"b":2}')
        second = client.responses.create(
            model="mcp",
            previous_response_id=first.id,
            tools=tools,
            input=[{"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}],
        )
    made = second.output[0]
    assert made.type == "mcp_call"
    assert (made.output, made.approval_request_id) == ("3", asked.id)
    assert second.output_text == "Read: 3"


async def _over_websocket(server: RunningServer, tools: Any) -> list[str]:
    async with async_sdk(server) as client, client.responses.connect() as connection:
        await connection.response.create(model="mcp", input="hi", tools=tools)
        seen: list[str] = []
        async for event in connection:
            seen.append(event.type)
            if event.type == "response.completed":
                break
        return seen


def test_over_websocket_too(server: RunningServer, new_harbour: McpProcess) -> None:
    seen = asyncio.run(_over_websocket(server, [harbour(new_harbour)]))
    assert seen.count("response.mcp_call.completed") == 2
