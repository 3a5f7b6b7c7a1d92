"""The toolboxes of one connection: what its definitions of hosted tools were opened to, kept while the same bytes come.

Listing an MCP server's tools costs a journey; so, like the route, it is asked once a connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec
import trio

from respserver.schema.tools import HostedDef
from respserver.tools.base import Host, Toolbox, ToolboxUnavailable

MAX_KEPT = 16
"""A client whose definitions change with every turn (a token that is renewed) keeps no more of them open."""

MAX_SERVED = 64
"""Definitions that one request may have opened: all at once, so that a request should not become a flood."""


class _Kept(msgspec.Struct):
    toolbox: Toolbox
    users: int = 0
    """Turns that work with it."""


class Toolboxes:
    """Opens definitions with the host of their kind. ``seconds`` bounds what closing may take."""

    def __init__(self, hosts: Mapping[str, Host], seconds: float) -> None:
        self._hosts = hosts
        self._seconds = seconds
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def serves(self, definition: HostedDef) -> bool:
        """Whether there is a host for this kind."""
        return definition.kind in self._hosts

    def check(self, definition: HostedDef) -> None:
        """Raises an ``InvalidRequest`` for a definition that may not be served; what is open was checked before."""
        if bytes(definition.raw) not in self._kept:
            self._hosts[definition.kind].check(definition.raw, definition.place)

    async def take(self, definition: HostedDef) -> Toolbox:
        """The toolbox of a definition, open until it is given back. Raises ``ToolboxUnavailable``."""
        key, spare = bytes(definition.raw), None
        if key not in self._kept:
            toolbox = await self._hosts[definition.kind].open(definition.raw, definition.place)
            if key in self._kept:  # another lane was quicker
                spare = toolbox
            else:
                self._kept[key] = _Kept(toolbox)
        kept = self._kept[key]
        kept.users += 1  # before anything is waited for, in which it could be closed for want of room
        self._kept.move_to_end(key)
        if spare is not None:
            await spare.aclose()
        await self._make_room()
        return kept.toolbox

    def give_back(self, toolbox: Toolbox) -> None:
        """A turn is done with it."""
        for kept in self._kept.values():
            if kept.toolbox is toolbox:
                kept.users -= 1

    async def aclose(self) -> None:
        """Close all, at the end of the connection; also in a cancelled scope."""
        if not self._kept:
            return
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._seconds
            while self._kept:
                _, kept = self._kept.popitem()
                await kept.toolbox.aclose()

    async def _make_room(self) -> None:
        while len(self._kept) > MAX_KEPT:
            idle = next((key for key, kept in self._kept.items() if not kept.users), None)
            if idle is None:
                return
            await self._kept.pop(idle).toolbox.aclose()


__all__ = ["MAX_KEPT", "ToolboxUnavailable", "Toolboxes"]
