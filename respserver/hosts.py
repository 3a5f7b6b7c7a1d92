"""Which hosts the server may call for a client, and which addresses are nobody else's business. Pure text and numbers.

An entry names a host (``mcp.example.com``, ``10.0.0.7``, ``[::1]``), perhaps with a port, or all hosts of a domain
(``*.example.com``), or all (``*``). Only an entry without a wildcard can open what is private: a pattern that means
the internet should not open the machine next door, whatever a name is made to resolve to.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

_ENTRY = re.compile(
    r"(?P<host>\*|(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)


class HostPattern(NamedTuple):
    """One entry."""

    host: str
    port: int | None
    """None is any."""

    @property
    def is_wild(self) -> bool:
        """Whether it stands for more than one host."""
        return self.host.startswith("*")

    def fits(self, host: str, port: int) -> bool:
        """Whether it means this host, which is in lower case and without brackets, on this port."""
        if self.port not in (None, port):
            return False
        return self.host in ("*", host) or (self.is_wild and len(self.host) > 1 and host.endswith(self.host[1:]))


def read_pattern(entry: str) -> HostPattern | None:
    """An entry as it was written; None if it is none."""
    match = _ENTRY.fullmatch(entry.lower())
    if match is None:
        return None
    host, port = match["host"].strip("[]"), match["port"]
    if port is not None and not 0 < int(port) < 1 << 16:
        return None
    return HostPattern(host, None if port is None else int(port))


def find(patterns: Iterable[HostPattern], host: str, port: int) -> HostPattern | None:
    """The entry that means a host best: one without a wildcard, if there is one; None if there is none at all."""
    fitting = [pattern for pattern in patterns if pattern.fits(host, port)]
    return min(fitting, key=lambda pattern: pattern.is_wild, default=None)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet's: not private, loopback, link-local, reserved or multicast."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or _translated(ip)
        if inner is not None:
            return is_public(str(inner))
        if any(ip in network for network in _INNER_NETWORKS):
            return False
    return ip.is_global and not ip.is_multicast


_TRANSLATING = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""What stands for an IPv4 address by its last 32 bits, beside the forms that the standard library knows."""
_INNER_NETWORKS = tuple(map(ipaddress.IPv6Network, ("64:ff9b:1::/48", "fec0::/10")))
"""Of a site, although the standard library calls them global."""


def _translated(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    is_one = any(ip in network for network in _TRANSLATING)
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if is_one else None
