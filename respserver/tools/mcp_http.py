"""The HTTP below the MCP client: one server's session, as one definition knows it.

What a session begins with (the handshake, the list of tools) is asked of the server once and answered from memory
afterwards. An answer that is an event stream is read up to the reply: what a server sends beside it (progress, log
lines) goes no further, and its own event stream (GET) is never opened. Redirects are not followed, proxies and the
environment not looked at.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import msgspec
import trio
from msgspec import Raw

from respserver.errors import RespserverError
from respserver.http11 import EventData, Link, Links

ANSWER_BYTES = 4 << 20
"""A context takes no more, and a server that never stops should not fill our memory."""
END_SECONDS = 1.0
"""How long telling a server that its session is over may take."""
TAIL_SECONDS = 0.1
"""How long an event stream may go on behind its reply for the connection to be kept."""
_KEPT = frozenset({"initialize", "server/discover", "tools/list"})
_ACCEPT = {"accept": "application/json, text/event-stream", "accept-encoding": "identity"}
SESSION_HEADER = "mcp-session-id"
_VERSION = "mcp-protocol-version"
NULL = Raw(b"null")


class McpFailed(RespserverError):
    """The server did not do what it was asked; the text says why, without what was sent."""


class SessionForgotten(McpFailed):
    """The session has ended at the server, and nothing was done."""


class Message(msgspec.Struct):
    """What we look at of a message of either side."""

    jsonrpc: str = ""
    method: str = ""
    id: Raw = Raw(b"null")
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"")
    error: Raw = Raw(b"")

    @property
    def is_reply(self) -> bool:
        """Whether it answers something; an error is an answer too."""
        return self.jsonrpc == "2.0" and bool(bytes(self.result) or bytes(self.error))


class Reply(msgspec.Struct):
    """An HTTP answer; ``body`` is a JSON-RPC message, or empty."""

    status: int
    body: bytes = b""
    session: str | None = None

    @property
    def has_result(self) -> bool:
        """Whether it is no error."""
        return bool(self.body and bytes(_decoder.decode(self.body).result))


_decoder = msgspec.json.Decoder(Message)


class McpSession:
    """One session with a server, over connections that the next one may use as well."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._kept: dict[tuple[str, bytes], Reply] = {}
        self._id: str | None = None
        self._version: str | None = None
        self._numbers = itertools.count(1)

    async def exchange(self, message: Message, fields: dict[str, Raw], headers: dict[str, str]) -> Reply:
        """One message and the reply, from memory if it is of the kind that is kept.

        Each operation of the package counts its requests from the beginning, and at the server they are of one
        session: so they are counted here.
        """
        place = (message.method, bytes(message.params))
        if (kept := self._kept.get(place)) is not None:
            return kept
        if message.method == "notifications/initialized" and self._session_is_begun:
            return Reply(202)
        if message.id != NULL:
            fields = {**fields, "id": Raw(b"%d" % next(self._numbers))}
        try:
            reply = await self._post(fields, headers)
        except trio.Cancelled:
            # The newer protocol takes the closed connection for it.
            if message.method == "tools/call" and any(method == "initialize" for method, _ in self._kept):
                await self._tell_of_cancellation(fields["id"], headers)
            raise
        if reply.status == 404 and SESSION_HEADER in headers:
            raise SessionForgotten("the server has forgotten the session")
        if message.method == "initialize" and reply.session is not None:
            if not reply.session.isascii():
                raise McpFailed("its session id cannot be sent in a header")
            self._id = reply.session
        self._version = headers.get(_VERSION, self._version)
        self._keep(place, reply)
        return reply

    def renewed(self) -> McpSession:
        """The session that takes its place once the server has forgotten it."""
        return McpSession(self._links)

    async def aclose(self) -> None:
        """End the session at the server, if it keeps one, and close the connections. Never fails."""
        with trio.move_on_after(END_SECONDS, shield=True):
            if self._id is not None:
                await self._end()
        self._id = None
        await self._links.aclose()

    async def _post(self, fields: dict[str, Raw], headers: dict[str, str]) -> Reply:
        async with self._links.post(msgspec.json.encode(fields), {**_ACCEPT, **headers}) as (head, link):
            given = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            return await _read_reply(head.status_code, given, link, fields.get("id", NULL))

    async def _end(self) -> None:
        headers = {SESSION_HEADER: self._id, _VERSION: self._version}
        given = {name: value for name, value in headers.items() if value is not None}
        with suppress(RespserverError):  # without an answer it will find out by itself
            async with self._links.post(b"", given, method="DELETE") as (_, link):
                await link.read(ANSWER_BYTES)

    async def _tell_of_cancellation(self, id: Raw, headers: dict[str, str]) -> None:
        params = Raw(msgspec.json.encode({"requestId": id, "reason": "the caller does not wait any longer"}))
        told = {"jsonrpc": Raw(b'"2.0"'), "method": Raw(b'"notifications/cancelled"'), "params": params}
        with trio.move_on_after(END_SECONDS, shield=True), suppress(RespserverError):
            await self._post(told, headers)

    @property
    def _session_is_begun(self) -> bool:
        """Whether the server was told so: what is told of only once the tools are listed."""
        return any(method == "tools/list" for method, _ in self._kept)

    def _keep(self, place: tuple[str, bytes], reply: Reply) -> None:
        method, _ = place
        # A server of the older protocol refuses to be discovered, and will again.
        if method == "server/discover" or (method in _KEPT and reply.has_result):
            self._kept[place] = reply
        if sum(len(kept.body) for kept in self._kept.values()) > ANSWER_BYTES:
            raise McpFailed(f"what it lists is larger than {ANSWER_BYTES} bytes")


async def _read_reply(status: int, headers: dict[str, str], link: Link, id: Raw) -> Reply:
    is_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
    if is_stream and status < 300 and id != NULL:
        body = await _reply_in_stream(link, id)
    else:
        body = await link.read(ANSWER_BYTES)
        if body and status < 300 and id != NULL:
            _read_message(body)
        elif not _is_message(body):
            body = b""  # a page that tells a person what the status tells us
    return Reply(status, body, headers.get(SESSION_HEADER))


async def _reply_in_stream(link: Link, id: Raw) -> bytes:
    """The message of an event stream that answers; those before it are passed over."""
    events = EventData(link, ANSWER_BYTES)
    while (data := await events.next()) is not None:
        if not data:
            continue
        message = _read_message(data)
        if message.is_reply and message.id == id:
            with trio.move_on_after(TAIL_SECONDS), suppress(RespserverError):
                await link.read(ANSWER_BYTES)
            return data
    raise McpFailed("the answer's event stream ended without a reply")


def _read_message(data: bytes) -> Message:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise McpFailed("its answer is no JSON-RPC message") from None


def _is_message(data: bytes) -> bool:
    try:
        return _decoder.decode(data).is_reply
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
