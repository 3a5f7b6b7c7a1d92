"""An answer of HTTP that is not the one asked for, as the error that it tells."""

from __future__ import annotations

from contextlib import suppress

import h11
import trio

from respserver.client.wire import api_error
from respserver.errors import ApiError, ConnectionLost
from respserver.http11 import Link

REFUSAL_BYTES = 1 << 16
"""More of a body isn't read: an error is a few words."""
REFUSAL_SECONDS = 5.0
"""How long the body may take behind the head."""


async def read_refusal(head: h11.Response | h11.InformationalResponse, link: Link) -> ApiError:
    """The error that an answer tells. Its head is enough; a body that breaks off or never ends adds what came of it."""
    body = bytearray()
    with trio.move_on_after(REFUSAL_SECONDS), suppress(ConnectionLost):
        while len(body) < REFUSAL_BYTES and (part := await link.read_some()):
            body += part
    is_error = head.status_code >= 400  # else the body isn't about an error: a page, or where to go instead
    return api_error(bytes(body) if is_error else b"", head.status_code, head.headers)
