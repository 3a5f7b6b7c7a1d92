"""A rollout of thirty calls, and the ways in which the client can drive it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import trio.testing

from respserver.client import Client, event_type
from respserver.config import Mode
from respserver.embed import RunningServer
from respserver.engines.sim import Script, call, custom, reasoning, text
from tests.support.live import tool
from tests.support.spy import Spy

WAYS: dict[str, tuple[Mode, dict[str, Any]]] = {
    "http full": (Mode.SHIPPED, {"transport": "http", "chained": False, "store": False}),
    "http chained": (Mode.SHIPPED, {"transport": "http"}),
    "websocket full": (Mode.SHIPPED, {"chained": False, "store": False}),
    "websocket shipped": (Mode.SHIPPED, {"store": False}),
    "websocket prototype": (Mode.PROTOTYPE, {"store": False}),
    "http of a prototype server": (Mode.PROTOTYPE, {"transport": "http"}),
}
TOOLS = [
    tool("look", n={"type": "integer"}),
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "fs", "tools": [tool("read")]},
]
ANSWER = "Thirty calls, and here is žluťoučký kůň 🐎."


def script_of_thirty_calls() -> Script:
    """Single calls, pairs and triples, with thoughts and remarks between them, of all kinds of tools."""
    steps: list[Any] = []
    for number in range(5):
        steps += [
            call("look", n=number),
            [reasoning(f"Round {number}.", "Two."), call("look", n=number + 10), custom("patch", f"*** {number}")],
            [text("Let me see.", phase="commentary"), call("fs.read", path="a.txt"), call("look"), call("look", n="☂")],
        ]
    return Script.of(*steps, [reasoning("Done."), ANSWER])


class Tools:
    """Functions that answer by what they are asked, whatever the order; ``together`` is how many ran side by side."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.together = 0
        self._running = 0

    def by_name(self) -> dict[str, Any]:
        return {name: self._named(name) for name in ("look", "patch", "fs.read")}

    def _named(self, name: str) -> Any:
        async def run(arguments: dict[str, Any]) -> str:
            said = f"{name} of {sorted(arguments.items())}"
            self.runs.append(said)
            self._running += 1
            self.together = max(self.together, self._running)
            await trio.testing.wait_all_tasks_blocked()
            self._running -= 1
            return said

        return run


class Played:
    """What a way has led to: the items and the final text, what the model saw at each step, what the tools did, and
    what the server counted."""

    def __init__(
        self, events: list[Any], spy: Spy, tools: Tools, history: Sequence[Any], server: RunningServer
    ) -> None:
        self.server = server
        self.events = events
        self.kinds = [event_type(event) for event in events]
        self.history = [bare(item) for item in history]
        self.items = [bare(event.item) for event in events if event_type(event) == "response.output_item.done"]
        self.text = events[-1].response.output[-1].content[0].text
        self.contexts = spy.context_ids
        self.runs = sorted(tools.runs)
        self.together = tools.together


def bare(item: Any) -> dict[str, Any]:
    """An item without what is new each time."""
    made_up = ("id", "call_id", "encrypted_content")
    return {name: value for name, value in msgspec.to_builtins(item).items() if name not in made_up}


async def play(serve: Any, way: str) -> Played:
    """The whole rollout in this way, with a server of its own."""
    mode, how = WAYS[way]
    spy, tools = Spy(script_of_thirty_calls()), Tools()
    server = await serve(engine=spy, mode=mode)
    async with Client(server.base_url) as client:
        rollout = client.rollout("go", model="sim", tools=tools.by_name(), tool_definitions=TOOLS, **how)
        events = [event async for event in rollout]
    return Played(events, spy, tools, rollout.history, server)
