"""The MCP client: the protocol is the ``mcp`` package's, the HTTP is ours (``mcp_http.py``).

Each operation opens a session of the package, does one thing and leaves, so that nothing runs in between and a
cancellation leaves nothing behind. To the server they are all one session, and each is one request.

The package's HTTP client is replaced at its lowest end, the transport: under Trio the event streams above it cannot be
left without generators being found by the garbage collector, so what it is given is plain JSON.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar
from urllib.parse import SplitResult

import httpx2
import mcp_types
import msgspec
import trio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from msgspec import Raw
from pydantic import ValidationError

from respserver.errors import ConnectionLost, RespserverError
from respserver.http11 import AnswerTooLarge, Dial, Links
from respserver.tools.mcp_http import SESSION_HEADER, McpFailed, McpSession, Message, Reply, SessionForgotten

T = TypeVar("T")

MAX_PAGES = 100
MAX_TOOLS = 1000
"""A list without an end is cut here."""
MAX_TOLD = 500
"""Characters of a server's own words in an error."""
_fields = msgspec.json.Decoder(dict[str, Raw])
_message = msgspec.json.Decoder(Message)
_tools = msgspec.json.Decoder(list[dict[str, Raw]])


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server lists it."""

    name: str
    description: str | None
    parameters: Any  # Any: a JSON schema
    annotations: Any  # Any: whatever the server says
    is_read_only: bool


class Answer(msgspec.Struct, frozen=True):
    """What a call came to, as text."""

    text: str
    is_error: bool


class McpServer:
    """One MCP server, as one definition knows it. ``headers`` go with every request, and ``dial`` connects."""

    def __init__(self, url: SplitResult, headers: dict[str, str], dial: Dial) -> None:
        self._url = url.geturl()
        self._session = McpSession(Links(url, headers, dial=dial))
        self._renewing = trio.Lock()

    async def list_tools(self) -> list[Listed]:
        """All pages. Raises ``McpFailed`` and what ``dial`` raises of its own."""
        return [_listed(tool) for tool in await self._operate(_all_tools)]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Run one tool. Raises ``McpFailed`` and what ``dial`` raises of its own."""

        async def ask(client: Client) -> mcp_types.CallToolResult:
            await _all_tools(client)  # from memory: the session checks and completes calls by the tools it knows
            return await client.call_tool(name, arguments)

        return _answer(await self._operate(ask))

    async def aclose(self) -> None:
        """End the session at the server, if it keeps one, and close the connections. Never fails."""
        await self._session.aclose()

    async def _operate(self, work: Callable[[Client], Awaitable[T]]) -> T:
        session = self._session
        try:
            return await self._once(session, work)
        except SessionForgotten:  # begin anew, once
            await self._renew(session)
            return await self._once(self._session, work)

    async def _renew(self, forgotten: McpSession) -> None:
        """Begin a new session. Of calls side by side that have all lost theirs, one does; the new session is nobody's
        before its handshake is over."""
        async with self._renewing:
            if self._session is not forgotten:
                return
            fresh = forgotten.renewed()
            try:
                await self._once(fresh, _all_tools)
            except BaseException:
                await fresh.aclose()
                raise
            self._session = fresh

    async def _once(self, session: McpSession, work: Callable[[Client], Awaitable[T]]) -> T:
        wire = _Wire(session)
        token = _quiet.set(True)
        try:
            async with httpx2.AsyncClient(transport=wire, trust_env=False, timeout=None) as http:
                road = streamable_http_client(self._url, http_client=http, terminate_on_close=False)
                async with Client(road, cache=None) as client:
                    return await work(client)
        except BaseException as error:  # noqa: BLE001 - becomes one error of ours, or goes on as a cancellation
            raise_ours(error, wire.fault)
        finally:
            _quiet.reset(token)


class _Wire(httpx2.AsyncBaseTransport):
    """The package's way to the server during one operation."""

    def __init__(self, session: McpSession) -> None:
        self._session = session
        self.fault: RespserverError | None = None
        """What went wrong below the protocol at the last request."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return httpx2.Response(405)
        await request.aread()
        fields, message = _fields.decode(request.content), _message.decode(request.content)
        headers = {name: value for name, value in request.headers.items() if name.startswith("mcp-")}
        self.fault = None
        try:
            reply = await self._session.exchange(message, fields, headers)
        except (ConnectionLost, AnswerTooLarge) as error:
            self.fault = McpFailed(str(error))
            raise httpx2.TransportError("no reply", request=request) from error
        except RespserverError as error:
            self.fault = error
            raise httpx2.TransportError("no reply", request=request) from error
        if reply.status >= 300 and not reply.body:  # the package judges it: an old server refuses some methods so
            self.fault = McpFailed(_status(reply.status))
        return _response(reply, message)


def _response(reply: Reply, message: Message) -> httpx2.Response:
    """The reply as the package's client takes it. It has no ``location``, so there is no redirect to follow."""
    headers = {} if reply.session is None else {SESSION_HEADER: reply.session}
    if not reply.body:
        return httpx2.Response(reply.status, headers=headers)
    fields = {**_fields.decode(reply.body), "id": message.id}  # it may come from memory
    if message.method == "tools/list" and reply.has_result:
        fields["result"] = _without_output_schemas(fields["result"])
    body = msgspec.json.encode(fields)
    return httpx2.Response(reply.status, headers={"content-type": "application/json", **headers}, content=body)


def _without_output_schemas(result: Raw) -> Raw:
    """A list of tools without what the package would check their results by: a server's own regular expressions and
    choices can be made to take hours, and while they do nothing else runs, deadlines included."""
    with suppress(msgspec.ValidationError):  # which the package tells of
        listed = _fields.decode(result)
        tools = _tools.decode(listed.get("tools", Raw(b"[]")))
        for tool in tools:
            tool.pop("outputSchema", None)
        return Raw(msgspec.json.encode({**listed, "tools": tools}))
    return result


def _status(status: int) -> str:
    return f"it answered with status {status}{', and redirects are not followed' if 300 <= status < 400 else ''}"


def raise_ours(error: BaseException, fault: RespserverError | None) -> NoReturn:
    """Raise what the package's tasks came to as one error of ours, ``fault`` if there is one; a cancellation goes on as
    it is, and alone."""
    if isinstance(error, Exception):
        raise fault or McpFailed(_in_words(_first(error))) from error
    if isinstance(error, BaseExceptionGroup):
        error = error.subgroup(lambda one: not isinstance(one, Exception | BaseExceptionGroup)) or error
    raise error


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _in_words(error: Exception) -> str:
    if isinstance(error, MCPError):
        return error.error.message[:MAX_TOLD]
    if isinstance(error, ValidationError):
        return "its answer breaks the protocol"
    return (
        str(error)[:MAX_TOLD] if isinstance(error, RuntimeError) else f"the MCP client failed ({type(error).__name__})"
    )


async def _all_tools(client: Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) >= MAX_TOOLS:
            break
    return tools[:MAX_TOOLS]


def _listed(tool: mcp_types.Tool) -> Listed:
    said = tool.annotations
    return Listed(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        annotations=None if said is None else said.model_dump(mode="json", by_alias=True, exclude_none=True),
        is_read_only=said is not None and said.read_only_hint is True,
    )


def _answer(result: mcp_types.CallToolResult) -> Answer:
    parts = [
        part.text if isinstance(part, mcp_types.TextContent) else part.model_dump_json(by_alias=True, exclude_none=True)
        for part in result.content
    ]
    text = "\n".join(parts)
    if not text and result.structured_content is not None:
        text = msgspec.json.encode(result.structured_content).decode()
    return Answer(text, bool(result.is_error))


class _Silence(logging.Filter):
    """The package and its HTTP client log addresses, session ids and what tools are called with."""

    def filter(self, _record: logging.LogRecord) -> bool:
        return not _quiet.get()


_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("respserver_mcp_quiet", default=False)
"""Whether what runs is ours: other uses of the package in this process may log as they like."""
for _name in [*logging.root.manager.loggerDict]:
    if _name.partition(".")[0] in ("mcp", "httpx2"):
        logging.getLogger(_name).addFilter(_Silence())
