"""HTTP heads as bytes: reading a connection's first request head, and writing an answer without a framework.

Just enough to tell a WebSocket upgrade from everything else, and to refuse before there is anything to refuse with.
No sockets here; whatever is not HTTP is left for hypercorn to answer.
"""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from urllib.parse import urlsplit

import h11
import msgspec

from respserver.errors import ApiError

VERSION = "13"
"""Of WebSocket: the only one that there is (RFC 6455 section 4.1)."""
NOWHERE = "/*"
"""A path that no server of ours has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Head:
    """The first request's head, and what came behind it.

    ``target`` is the path with its query, ``headers`` have lower-case names, ``raw`` is the head's bytes just as they
    came, ``rest`` the bytes behind them. ``upgrades`` tells a WebSocket upgrade; the handshake itself may be wrong yet.
    """

    target: str
    headers: list[tuple[str, str]]
    raw: bytes
    rest: bytes
    upgrades: bool


class HeadTooLarge(ApiError):
    """The request head is over its limit."""

    status = 431
    type = "invalid_request_error"
    code = "request_head_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request head is larger than the limit of {limit} bytes.")


class BadHandshake(ApiError):
    """The upgrade request is not a WebSocket handshake."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_handshake"

    def __init__(self, problem: str = "") -> None:
        super().__init__(f"The request is not a valid WebSocket handshake. {problem}".rstrip())


class WrongVersion(BadHandshake):
    """The handshake is of another version of WebSocket than there is (RFC 6455 section 4.4)."""

    status = 426
    code = "unsupported_websocket_version"
    hints = (("sec-websocket-version", VERSION),)


class HeadReader:
    """Takes a connection's first bytes until they hold a request head. ``limit`` is its greatest size in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=limit)
        self._received = bytearray()

    def feed(self, data: bytes) -> Head | None:
        """Take bytes; the head, or None while it is incomplete. Raises ``HeadTooLarge``.

        Bytes that are no HTTP/1 request come back as a head that upgrades nothing.
        """
        self._received += data
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HeadTooLarge.status:
                raise HeadTooLarge(self._limit) from None
            return Head("", [], bytes(self._received), b"", upgrades=False)
        if not isinstance(event, h11.Request):
            return None
        return self._head(event)

    def _head(self, request: h11.Request) -> Head:
        received = bytes(self._received)
        rest, _ = self._parser.trailing_data
        size = len(received) - len(rest)
        if size > self._limit:
            raise HeadTooLarge(self._limit)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        target = request.target.decode("ascii")
        return Head(target, headers, received[:size], received[size:], upgrades=is_upgrade(request, headers))


def is_upgrade(request: h11.Request, headers: list[tuple[str, str]]) -> bool:
    """RFC 6455 section 4.2.1, points 1 to 4: the parts that tell what is asked for."""
    return (
        request.method == b"GET"
        and request.http_version == b"1.1"
        and "websocket" in _tokens(headers, "upgrade")
        and "upgrade" in _tokens(headers, "connection")
    )


def _tokens(headers: list[tuple[str, str]], wanted: str) -> set[str]:
    return {token.strip().lower() for name, value in headers if name == wanted for token in value.split(",")}


def check_handshake(headers: list[tuple[str, str]]) -> None:
    """Raises ``BadHandshake`` and ``WrongVersion`` for an upgrade that the libraries would refuse without a word."""
    fields = dict(headers)
    if "sec-websocket-key" not in fields:
        raise BadHandshake("It has no Sec-WebSocket-Key.")
    if "sec-websocket-version" not in fields:
        raise BadHandshake("It has no Sec-WebSocket-Version.")
    if fields["sec-websocket-version"].strip() != VERSION:
        raise WrongVersion(f"The only version is {VERSION}.")


def origin_form(target: str) -> str:
    """The path with its query that a request target asks for; ``NOWHERE`` if it names no path.

    Servers must also take a whole URL (RFC 9112 section 3.2.2). Two slashes at the beginning are just a path.
    """
    if target.startswith("/"):
        return target
    try:
        url = urlsplit(target)
    except ValueError:
        return NOWHERE
    if not url.netloc:
        return NOWHERE
    path = url.path or "/"
    return f"{path}?{url.query}" if url.query else path


def answer(error: ApiError) -> bytes:
    """A whole HTTP response that refuses: the error's status, its envelope as JSON, and the end of the connection."""
    body = error_body(error)
    fields = {"content-length": str(len(body)), **refusal_fields(error)}
    lines = [
        f"HTTP/1.1 {error.status} {_phrase(error.status)}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def refusal_fields(error: ApiError) -> dict[str, str]:
    """The header of an answer that refuses an upgrade, or any connection."""
    fields = {"content-type": "application/json", "connection": "close", **error.headers}
    if error.status == HTTPStatus.UPGRADE_REQUIRED:
        # RFC 9110 section 15.5.22 demands it. It names what we do speak, not what was just refused.
        fields["upgrade"] = "websocket" if isinstance(error, WrongVersion) else "HTTP/1.1"
    return fields


def error_body(error: ApiError) -> bytes:
    """The HTTP error envelope; all four keys are always there (protocol.md section 4.4)."""
    detail = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": detail})


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
