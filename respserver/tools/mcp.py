"""MCP servers as hosts of tools: what a definition asks for, which tools the model is told of, what a call came to.

The wire is ``mcp_wire.py``'s, which imports the ``mcp`` package and is itself imported when the first definition is
opened: an optional package, a second of work, and no business of servers that allow no MCP host.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw

from respserver.errors import ConfigError, InvalidField, RespserverError
from respserver.logger import get_logger
from respserver.schema.mcp import McpDefinition, parse_mcp
from respserver.tools.base import HostedTool, Result, ToolboxUnavailable
from respserver.tools.outbound import HostRefused, Outbound

if TYPE_CHECKING:
    from respserver.tools.mcp_wire import Listed, McpServer

MAX_NAME = 128
"""Characters of a tool's name, as the MCP specification has it."""
_arguments = msgspec.json.Decoder(dict[str, object])

log = get_logger("respserver.tools")


class McpHost:
    """Opens ``mcp`` definitions.

    ``allow`` are the hosts that may be called (``hosts.py``); ``list_seconds`` bounds connecting and listing. Raises
    ``ConfigError`` if hosts are allowed and the ``mcp`` package is not installed.
    """

    kind = "mcp"

    def __init__(self, allow: Sequence[str], *, list_seconds: float) -> None:
        if allow and importlib.util.find_spec("mcp") is None:
            raise ConfigError("mcp_allow", "needs the package mcp, which is not installed: pip install respserver[mcp]")
        self._outbound = Outbound(allow)
        self._list_seconds = list_seconds

    def check(self, definition: Raw, param: str) -> None:
        """Raises an ``InvalidRequest`` for a wrong field, and for a server at a host that is not allowed."""
        try:
            self._outbound.check(parse_mcp(definition, param).url)
        except HostRefused as error:
            raise InvalidField(f"{param}.server_url", str(error)) from error

    async def open(self, definition: Raw, param: str) -> McpToolbox:
        """List a server's tools. Raises ``ToolboxUnavailable``."""
        known = parse_mcp(definition, param)
        # In a thread: the import takes a second, in which nobody else should have to wait.
        wire = await trio.to_thread.run_sync(importlib.import_module, "respserver.tools.mcp_wire")
        server: McpServer = wire.McpServer(known.url, known.sent_headers, self._outbound.dial)
        try:
            return McpToolbox(known, server, await self._list(server))
        except BaseException as error:  # which may be a cancellation: nothing stays open
            await server.aclose()
            if not isinstance(error, RespserverError):
                raise
            log.warning("mcp_unavailable", server_label=known.server_label, problem=str(error))
            raise ToolboxUnavailable(f"MCP server '{known.server_label}': {error}") from error

    async def aclose(self) -> None:
        """Nothing outlives the toolboxes."""

    async def _list(self, server: McpServer) -> list[Listed]:
        try:
            with trio.fail_after(self._list_seconds):
                return await server.list_tools()
        except trio.TooSlowError:
            raise TooSlow(f"its tools were not listed within {self._list_seconds:g} seconds") from None


class TooSlow(RespserverError):
    """A deadline has passed; the text says which."""


class McpToolbox:
    """The tools of one MCP server that a definition allows."""

    kind = "mcp"

    def __init__(self, definition: McpDefinition, server: McpServer, tools: Sequence[Listed]) -> None:
        self.label = definition.server_label
        self._server = server
        self._names: dict[str, str] = {}
        self.tools: list[HostedTool] = []
        for tool in tools:
            self._offer(definition, tool)

    async def call(self, name: str, arguments: str) -> Result:
        """Run one call; every failure is a result."""
        own_name = self._names.get(name)
        if own_name is None:
            return Result(error=f"there is no tool '{name}'")
        try:
            values = _arguments.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return Result(error="the arguments are not a JSON object")
        try:
            answer = await self._server.call(own_name, values)
        except RespserverError as error:
            return Result(error=str(error))
        if answer.is_error:
            return Result(error=answer.text or "the tool failed")
        return Result(text=answer.text)

    async def aclose(self) -> None:
        """End the session with the server."""
        await self._server.aclose()

    def _offer(self, definition: McpDefinition, tool: Listed) -> None:
        name = f"{self.label}.{tool.name}"
        if not (tool.name.isascii() and tool.name.isprintable() and " " not in tool.name):
            return  # no name that a model can say
        if not tool.name or len(tool.name) > MAX_NAME or name in self._names:
            return
        if not definition.offers(tool.name, is_read_only=tool.is_read_only):
            return
        self._names[name] = tool.name
        self.tools.append(
            HostedTool(
                name=name,
                description=tool.description,
                parameters=tool.parameters,
                annotations=tool.annotations,
                needs_approval=definition.needs_approval(tool.name, is_read_only=tool.is_read_only),
            )
        )
