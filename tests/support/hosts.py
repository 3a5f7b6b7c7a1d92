"""Hosted tools without anything behind them: fakes of an MCP server and of a search, for both of which a test decides
what they say, and when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import trio
from msgspec import Raw

from respserver.errors import InvalidField
from respserver.tools.base import HostedTool, Result, Source, Toolbox, ToolboxUnavailable
from tests.support.live import Frame
from tests.support.replay import Replay
from tests.support.sdk import check_event

Json = dict[str, Any]
NAMES = ("look", "add", "fail")


def mcp(label: str = "srv", **fields: Any) -> Json:
    """A definition."""
    return {
        "type": "mcp",
        "server_label": label,
        "server_url": f"https://{label}.test/mcp",
        "require_approval": "never",
        **fields,
    }


class FakeHost:
    """Serves every ``mcp`` definition with the same tools. A tool answers with its name and its arguments; ``fail``
    fails. A call waits while ``gates`` has an event for its qualified name."""

    kind = "mcp"

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.calls: list[tuple[str, str]] = []
        self.running: set[str] = set()
        self.most_running = 0
        self.gates: dict[str, trio.Event] = {}
        self.down: str | None = None
        """Why no definition can be opened; ``!`` stands for a fault."""
        self.names = NAMES

    def check(self, definition: Raw, param: str) -> None:
        if "forbidden" in json.loads(bytes(definition)).get("server_url", ""):
            raise InvalidField(f"{param}.server_url", "the host is not allowed.")

    async def open(self, definition: Raw, param: str) -> Toolbox:
        await trio.lowlevel.checkpoint()
        if self.down == "!":
            raise RuntimeError("a fault of the host's own")
        if self.down is not None:
            raise ToolboxUnavailable(self.down)
        self.opened += 1
        return FakeToolbox(self, json.loads(bytes(definition)))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class FakeToolbox:
    kind = "mcp"

    def __init__(self, host: FakeHost, definition: Json) -> None:
        self.label: str = definition["server_label"]
        self.tools = [
            HostedTool(
                name=f"{self.label}.{name}",
                description=f"Does {name}.",
                parameters={"type": "object", "properties": {"n": {"type": "number", "maximum": 1.5}}},
                annotations={"readOnlyHint": True},
                needs_approval=definition["require_approval"] == "always",
            )
            for name in host.names
        ]
        self._host = host

    async def call(self, name: str, arguments: str) -> Result:
        host = self._host
        host.calls.append((name, arguments))
        host.running.add(f"{name}{len(host.calls)}")
        mine = f"{name}{len(host.calls)}"
        host.most_running = max(host.most_running, len(host.running))
        try:
            if name in host.gates:
                await host.gates[name].wait()
            await trio.lowlevel.checkpoint()
        finally:
            host.running.discard(mine)
        if name.endswith(".fail"):
            return Result(error="it broke")
        if name.endswith(".crash"):
            raise RuntimeError("a fault of the tool's own")
        return Result(text=f"{name} got {arguments}")

    async def aclose(self) -> None:
        self._host.closed += 1


class Library:
    """A provider of searches that finds the same for everything; nothing for ``nothing``."""

    FOUND = (
        Source(url="file:///tides.md", title="Tides", text="High at noon."),
        Source(url="file:///moon.md", title="The moon ☾", text="It pulls."),
    )

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def search(self, query: str, most: int) -> Sequence[Source]:
        await trio.lowlevel.checkpoint()
        self.asked.append((query, most))
        if query == "broken":
            raise OSError("the shelf is gone")
        return () if query == "nothing" else self.FOUND

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def kinds(response: Frame) -> list[str]:
    """The types of a Response's items."""
    return [item["type"] for item in response["output"]]


def check_turn(frames: list[Frame]) -> Frame:
    """Every event suits the SDK, and they add up to the Response, which is given back."""
    replay = Replay()
    for frame in frames:
        if frame["type"] != "response.done":
            check_event(frame)
        replay.feed(frame)
    response: Frame = frames[-1]["response"]
    return response
