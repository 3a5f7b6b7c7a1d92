"""Calls to hosts that clients name: which are allowed, and by which addresses they are reached.

A name is resolved once for each connection, and the address that was looked at is the one that is connected to, so
that a name that resolves to something else a moment later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult

import trio

from respserver.errors import RespserverError
from respserver.hosts import HostPattern, find, is_public, read_pattern
from respserver.http11 import port_of

SETTING = "--mcp-allow"


class HostRefused(RespserverError):
    """The settings do not allow this host, or the addresses that it has; the text says what would."""


class Outbound:
    """The hosts that a setting allows."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._patterns = [pattern for entry in entries if (pattern := read_pattern(entry)) is not None]

    def check(self, url: SplitResult) -> None:
        """Raises ``HostRefused`` for a host that no entry means, and for plain http if none names the host alone."""
        pattern = self._find(url)
        if pattern is None:
            raise HostRefused(
                f"this server may not call '{_shown(url)}'; its setting {SETTING} names the hosts it may."
            )
        if url.scheme == "http" and pattern.is_wild:
            raise HostRefused(
                f"plain http needs an entry for '{_shown(url)}' in the setting {SETTING}, without a wildcard."
            )

    async def dial(self, host: str, port: int) -> trio.SocketStream:
        """Connect, as ``trio.open_tcp_stream`` does. Raises ``HostRefused`` as well: if any address is not public,
        unless an entry without a wildcard names the host."""
        pattern = find(self._patterns, host.lower(), port)
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        if (pattern is None or pattern.is_wild) and not all(map(is_public, addresses)):
            raise HostRefused(
                f"'{host}' has an address that is not public; only an entry of its own in the setting {SETTING} "
                "opens it, without a wildcard."
            )
        return await _connect(addresses, port)

    def _find(self, url: SplitResult) -> HostPattern | None:
        return find(self._patterns, (url.hostname or "").lower(), port_of(url))


async def _connect(addresses: list[str], port: int) -> trio.SocketStream:
    problem: OSError = OSError("it has no address")
    for address in addresses:
        try:
            return await trio.open_tcp_stream(address, port)
        except OSError as error:
            problem = error.__cause__ if isinstance(error.__cause__, OSError) else error  # which says why
    raise problem


def _shown(url: SplitResult) -> str:
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{host}:{url.port}" if url.port else str(host)
