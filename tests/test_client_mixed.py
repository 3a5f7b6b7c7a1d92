"""Rollouts whose calls the server, the client and its user have a part in, mixed at random: one in each way."""

from __future__ import annotations

import random
from typing import Any

import pytest

from respserver.client import Client, event_type
from respserver.engines.sim import Script, call, custom, reasoning, text
from respserver.tools.search import SearchHost
from tests.support.hosts import FakeHost, Library, mcp
from tests.support.spy import Spy
from tests.support.ways import TOOLS, WAYS

SAID = [
    reasoning("Hm.", "Two."),
    text("Let me [1] see.", phase="commentary"),
    custom("patch", "***"),
    call("fs.read", path="a"),
    call("look", n=1),
    call("srv.look", n=2),
    call("srv.fail"),
    call("ask.add", n=1),
    call("ask.add", n=22),
    call("web_search", query="tides"),
    call("web_search", query="broken"),
]
OFFERED = [*TOOLS, mcp(), mcp("ask", require_approval="always"), {"type": "web_search"}]


def script(chance: random.Random) -> list[Any]:
    """Some turns of the model, each of some things that it may say, and an answer."""
    turns = [chance.choices(SAID, k=chance.randint(1, 4)) for _ in range(chance.randint(1, 5))]
    return [*turns, "The end, see [1]."]


async def answer(arguments: dict[str, Any]) -> str:
    return f"seen {sorted(arguments.items())}"


async def allows(request: dict[str, Any]) -> bool:
    """One of the two calls that are asked about."""
    return len(request["arguments"]) % 2 == 0


async def drive(serve: Any, way: str, steps: list[Any], **fields: Any) -> tuple[Any, list[Any]]:
    """What the model saw at each step, and the kinds of all items."""
    mode, how = WAYS[way]
    spy = Spy(Script.of(*steps))
    server = await serve(engine=spy, mode=mode, hosts=[FakeHost(), SearchHost(Library())])
    tools = {"look": answer, "patch": answer, "fs.read": answer}
    async with Client(server.base_url) as client:
        rollout = client.rollout(
            "go", model="sim", tools=tools, tool_definitions=OFFERED, approve=allows, **how, **fields
        )
        events = [event async for event in rollout]
    assert event_type(events[-1]) == "response.completed", way
    return spy.context_ids, [item.get("type") for item in rollout.history]


@pytest.mark.parametrize("seed", range(8))
async def test_the_model_cannot_tell_the_ways_apart_whoever_runs_its_calls(serve: Any, seed: int) -> None:
    steps = script(random.Random(seed))
    fields = {"parallel_tool_calls": seed % 4 != 0}
    first = await drive(serve, "http full", steps, **fields)
    for way in WAYS:
        assert await drive(serve, way, steps, **fields) == first, way
