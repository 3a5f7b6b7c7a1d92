"""What client code reads of the wire: events as structs or dicts, errors with their facts, and the URL.

Lenient on purpose: an event that this schema doesn't know, by type or by shape, is a ``dict``, and an error in any of
the forms that servers use becomes an ``ApiError``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from respserver.errors import ApiError, ConfigError
from respserver.schema.codec import decode
from respserver.schema.events import TERMINAL_TYPES, ErrorEvent, ErrorFrame, ServerEvent

# Any: fields and items of any server, JSON values that this client passes on and doesn't read.
Json = dict[str, Any]
Item = Mapping[str, Any] | msgspec.Struct
ServerMessage = ServerEvent | ErrorFrame | ErrorEvent | Json

MESSAGE_BYTES = 1 << 30
"""Largest message taken: no real one comes near; the terminal event of a long rollout has several MB."""
END_TYPES = TERMINAL_TYPES | {"response.done"}
"""Events after which the server waits for the client."""


def event_type(event: ServerMessage) -> str:
    """The event's ``type``, whichever form it has."""
    return str(event.get("type") if isinstance(event, dict) else event.__struct_config__.tag)


def read_frame(text: str | bytes) -> ServerMessage:
    """The event of a WebSocket message. Raises an ``InvalidRequest`` if that is no JSON object."""
    return _read(_frame, text)


def read_sse_data(text: str | bytes) -> ServerMessage:
    """The event in an SSE ``data`` field. Raises an ``InvalidRequest`` if that is no JSON object."""
    return _read(_sse_event, text)


def api_error(body: bytes, status: int, headers: Iterable[tuple[bytes, bytes]] = ()) -> ApiError:
    """The error that a server told, facts kept; ``status`` and ``headers`` are for what doesn't carry its own."""
    try:
        failure = _failure.decode(body)
    except msgspec.DecodeError:
        failure = _Failure(message=body[:200].decode(errors="replace"))
    detail = failure.error or failure
    status = failure.status or status
    return ApiError(
        detail.message or f"the server answered with status {status}",
        param=detail.param,
        code=detail.code or "unknown_error",
        status=status,
        # Beside flat fields, ``type`` is the event's, not the error's.
        type=(failure.error and failure.error.type) or "unknown_error",
        headers=detail.headers
        or failure.headers
        or {name.decode("latin-1"): value.decode("latin-1") for name, value in headers},
    )


def responses_url(base_url: str, *, websocket: bool) -> SplitResult:
    """Where responses are made, below the URL that SDKs take. Raises ``ConfigError`` if that isn't HTTP's."""
    try:
        parts = urlsplit(base_url)
        is_whole = bool(parts.hostname) and parts.port != 0 and _VISIBLE.fullmatch(base_url)
    except ValueError as error:
        raise ConfigError("base_url", f"'{base_url}' is not a URL: {error}") from error
    if parts.scheme not in _WEBSOCKET_SCHEMES:
        raise ConfigError("base_url", f"'{base_url}' does not start with http:// or https://")
    if not is_whole:
        raise ConfigError("base_url", f"'{base_url}' is not a URL with a host, in ASCII and without spaces")
    scheme = _WEBSOCKET_SCHEMES[parts.scheme] if websocket else parts.scheme
    return parts._replace(scheme=scheme, path=parts.path.rstrip("/") + "/responses")


def authorization(api_key: str | None) -> dict[str, str]:
    """The headers that carry a key. Raises ``ConfigError`` for one that no header can carry."""
    if api_key and not _VISIBLE.fullmatch(api_key):
        raise ConfigError("api_key", "the key has a character other than visible ASCII, maybe a line break at its end")
    return {"authorization": f"Bearer {api_key}"} if api_key else {}


class _Detail(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    headers: dict[str, str] | None = None


class _Failure(_Detail):
    """An error as frames, streams and HTTP bodies show it: nested, flat or both."""

    error: _Detail | None = None
    status: int | None = None


_VISIBLE = re.compile(r"[!-~]+")
_WEBSOCKET_SCHEMES = {"http": "ws", "https": "wss"}
_frame = msgspec.json.Decoder(ServerEvent | ErrorFrame)
_sse_event = msgspec.json.Decoder(ServerEvent | ErrorEvent)
_object = msgspec.json.Decoder(Json)
_failure = msgspec.json.Decoder(_Failure)


def _read(decoder: msgspec.json.Decoder[Any], text: str | bytes) -> ServerMessage:
    try:
        event: ServerMessage = decoder.decode(text)
    except msgspec.DecodeError:
        return decode(_object, text)
    return event
