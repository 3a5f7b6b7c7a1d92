"""What a connection lives in: a nursery that callers needn't know of, and an end without farewell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from respserver.http11 import Stream


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
