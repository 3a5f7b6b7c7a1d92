"""How a connection comes to be, and a nursery for it that callers needn't know of."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import SplitResult

import trio

from respserver.client.wire import ConnectionLost

CONNECT_SECONDS = 10.0

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


async def open_stream(url: SplitResult, ssl_context: ssl.SSLContext | None) -> Stream:
    """Connect to the host of a URL, with TLS if its scheme says so. Raises ``ConnectionLost``."""
    host = url.hostname or ""
    try:
        with trio.fail_after(CONNECT_SECONDS):
            if url.scheme in ("http", "ws"):
                return await trio.open_tcp_stream(host, url.port or 80)
            stream = await trio.open_ssl_over_tcp_stream(
                host, url.port or 443, https_compatible=True, ssl_context=ssl_context
            )
            await _shake_hands(stream)
            return stream
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        raise ConnectionLost(f"cannot connect to {url.netloc}: {error}") from error


@asynccontextmanager
async def open_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery that doesn't wrap a single exception in a group: the caller's block has no business with it."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context  # else the group, which holds the error itself, would stand there


@asynccontextmanager
async def dropping(stream: Stream) -> AsyncIterator[None]:
    """Close a stream in the end, without any farewell that could wait."""
    try:
        yield
    finally:
        await trio.aclose_forcefully(stream)


async def _shake_hands(stream: trio.SSLStream[trio.SocketStream]) -> None:
    """Do it here, where failing is failing to connect, not at the first byte."""
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
