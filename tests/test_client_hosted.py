"""Rollouts whose tools run on both sides, with a real MCP server, in each way: one to the model all the same."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.client import Client
from respserver.engines.sim import Script, call
from tests.support.live import tool
from tests.support.mcp_server import McpProcess
from tests.support.spy import Spy
from tests.support.ways import WAYS, bare

pytestmark = pytest.mark.slow  # the first test waits for the server to start


async def look(arguments: dict[str, Any]) -> str:
    return f"seen {arguments['n']}"


async def drive(serve: Any, harbour: McpProcess, way: str, *, allowed: bool) -> tuple[Spy, list[Any], list[str]]:
    """The model's side of the rollout, its items, and what was asked for approval."""
    mode, how = WAYS[way]
    first = [call("harbour.tide", place="Oslo"), call("look", n=1), call("harbour.add", a=1, b=2)]
    spy = Spy(Script.of(first, call("look", n=2), "done"))
    server = await serve(engine=spy, mode=mode, mcp_allow=(harbour.host,))
    asked: list[str] = []

    async def approve(request: dict[str, Any]) -> bool:
        asked.append(request["name"])
        return allowed

    hosted = {
        "type": "mcp",
        "server_label": "harbour",
        "server_url": harbour.url,
        "require_approval": {"never": {"read_only": True}},
    }
    async with Client(server.base_url) as client:
        rollout = client.rollout(
            "go",
            model="sim",
            tools={"look": look},
            tool_definitions=[tool("look", n={"type": "integer"}), hosted],
            approve=approve,
            **how,
        )
        last = [event async for event in rollout][-1]
    assert last.response.output[-1].content[0].text == "done"
    return spy, [bare(item) for item in rollout.history], asked


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "denied"])
async def test_hosted_calls_approvals_and_own_tools_are_one_rollout_in_each_way(
    serve: Any, harbour: McpProcess, allowed: bool
) -> None:
    spy, history, asked = await drive(serve, harbour, "websocket shipped", allowed=allowed)
    assert asked == ["add"]
    assert "seen 1" in spy.contexts[1]
    assert ("harbour.add: 3" in spy.contexts[1]) is allowed
    kinds = [item.get("type") for item in history]
    assert kinds.count("mcp_call") == 1 + allowed
    assert kinds.count("function_call_output") == 2
    assert kinds.count("mcp_approval_response") == 1
    for way in WAYS:
        other, same, _ = await drive(serve, harbour, way, allowed=allowed)
        assert other.context_ids == spy.context_ids, way
        assert [item.get("type") for item in same] == kinds, way
