"""The way from an open stream to a WebSocket: the opening handshake of RFC 6455 section 4.1.

Ours, because the one of trio-websocket waits for ever for a server that has gone, takes an interim answer for a refusal
and drops a refusal's body that ends with the connection.
"""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha1
from urllib.parse import SplitResult

import h11
import trio

from respserver.client.refusal import read_refusal
from respserver.client.websocket import WebSocket
from respserver.errors import ConnectionLost
from respserver.http11 import CONNECT_SECONDS, Link, Stream, target_of

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def upgrade(stream: Stream, url: SplitResult, headers: dict[str, str]) -> WebSocket:
    """Ask for a WebSocket on a stream that stays the caller's to close.

    Raises ``ApiError`` for any other answer, ``ConnectionLost`` for none or one that isn't a WebSocket's.
    """
    key = b64encode(os.urandom(16))
    proposal = {
        "host": url.netloc,
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": key.decode(),
        "sec-websocket-version": "13",
    }
    link = Link(stream)
    try:
        with trio.fail_after(CONNECT_SECONDS):
            head = await link.ask(target_of(url), {**proposal, **headers})
    except trio.TooSlowError as error:
        raise ConnectionLost(f"{url.netloc} did not answer the upgrade") from error
    if head.status_code != 101:
        raise await read_refusal(head, link)
    if problem := _problem(head, key):
        raise ConnectionLost(f"{url.netloc} answered the upgrade, but {problem}")
    return WebSocket(stream, link.behind)


def _problem(head: h11.Response | h11.InformationalResponse, key: bytes) -> str | None:
    """What a client must not put up with in a 101."""
    fields = dict(head.headers)
    if fields.get(b"upgrade", b"").lower() != b"websocket" or b"upgrade" not in fields.get(b"connection", b"").lower():
        return "not to a WebSocket"
    if fields.get(b"sec-websocket-accept") != b64encode(sha1(key + _ACCEPT_GUID).digest()):
        return "its Sec-WebSocket-Accept does not fit the key"
    if b"sec-websocket-extensions" in fields or b"sec-websocket-protocol" in fields:
        return "with an extension or a subprotocol that was not asked for"
    return None
