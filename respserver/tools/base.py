"""What a hosted tool is: one that the server runs itself, where a client's tool has the loop wait for its client.

A *host* serves one kind of definition (``mcp``, ``web_search``) for the whole process. It opens a *toolbox* for one
definition of a request, which knows what it offers to the model and runs calls. Nothing here knows of turns or events.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import Raw


class HostedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a toolbox, as the model is told of it."""

    name: str
    """The qualified name that the model says."""
    description: str | None = None
    parameters: Any = None  # Any: a JSON schema
    annotations: Any = None  # Any: whatever an MCP server says of its tool
    needs_approval: bool = False


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a result quotes."""

    url: str
    title: str
    text: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a call came to. A failure is a result too: the model reads it and goes on."""

    text: str = ""
    """What the model reads, unless the call failed."""
    error: str | None = None
    """Why the call failed, for the item and for the model."""
    sources: tuple[Source, ...] = ()
    """What a search has found; the model reads them with numbers, behind ``text``."""


class Toolbox(Protocol):
    """The tools of one definition, open for calls."""

    kind: str
    label: str
    """How items name it: the ``server_label`` of an MCP server; empty where a kind has one toolbox only."""
    tools: list[HostedTool]

    async def call(self, name: str, arguments: str) -> Result:
        """Run one call; ``name`` is qualified, also one that is not among ``tools``, and ``arguments`` the JSON text
        that the model said. Failures are results: only a cancellation comes out of here. The caller has a deadline too.
        May run several times at once."""
        ...

    async def aclose(self) -> None:
        """Free what it holds, at the end of the connection or of the HTTP request. Bounded, and never fails."""
        ...


class Host(Protocol):
    """One kind of hosted tool, for the whole process."""

    kind: str

    def check(self, definition: Raw, param: str) -> None:
        """Look at a definition before ``response.created``, without asking anybody. ``param`` is where it stands, as in
        ``tools[2]``. Raises an ``InvalidRequest`` for one that may not be served: a field, a host that is not
        allowed."""
        ...

    async def open(self, definition: Raw, param: str) -> Toolbox:
        """Make ready what a definition asks for that was checked, listing its tools if need be; that is behind
        ``response.created``, and has a deadline of its own. Raises ``ToolboxUnavailable`` if it cannot be done, also
        because only now a name turned out to stand for an address that is not allowed."""
        ...

    async def aclose(self) -> None:
        """Free what the host holds."""
        ...


class ToolboxUnavailable(Exception):
    """The tools of a definition could not be listed; the text says why, for the item."""
