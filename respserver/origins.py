"""Origins of browser pages, read and compared as browsers do (RFC 6454). Pure text."""

from __future__ import annotations

import re

ANY = "*"
"""Stands for every origin, where a setting takes that."""
OPAQUE = "null"
"""What browsers send for pages that have none: files, sandboxed frames."""

_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|(?:(?![/?#@:\[\]\\])[!-~])+)(?::0*(?P<port>[0-9]{1,5}))?"
)


def canonical(origin: str) -> str | None:
    """An origin in the one way to write it: lower case, without a port that goes without saying. ``null`` stays.

    None if the text is no origin: it has a path, a user or no host.
    """
    if origin == OPAQUE:
        return origin
    match = _ORIGIN.fullmatch(origin.lower())
    if match is None:
        return None
    scheme, host, port = match["scheme"], match["host"], match["port"]
    if port is None or port == _DEFAULT_PORTS.get(scheme):
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{port}"


def is_same_host(origin: str, host: str | None) -> bool:
    """Whether a page comes from the server that it asks; ``host`` is the request's ``Host``.

    The scheme is not compared: a proxy in front may speak TLS where the server does not.
    """
    page = canonical(origin)
    scheme = "" if page is None else page.partition(":")[0]
    return host is not None and scheme in _DEFAULT_PORTS and canonical(f"{scheme}://{host}") == page
