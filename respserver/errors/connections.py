"""Why a connection, or a request for one, is refused or ends."""

from __future__ import annotations

from respserver.errors.base import InvalidRequest


class ConnectionLimitReached(InvalidRequest):
    """The socket has reached its greatest age."""

    code = "websocket_connection_limit_reached"

    def __init__(self, minutes: float) -> None:
        age = f"{minutes:g} minutes" if minutes >= 1 else f"{minutes * 60:g} seconds"
        super().__init__(
            f"Responses websocket connection limit reached ({age}). Create a new websocket connection to continue."
        )


class InvalidStreamId(InvalidRequest):
    """A lane's name that cannot be one; it is never echoed."""

    code = "invalid_stream_id"
    sentence = (
        "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters, "
        "numbers, underscores, hyphens, and periods."
    )

    def __init__(self) -> None:
        super().__init__(param="stream_id")


class StreamLimitReached(InvalidRequest):
    """A connection has named as many lanes as it may."""

    code = "websocket_stream_limit_reached"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This WebSocket connection has reached its maximum number of distinct stream IDs ({limit}). "
            "Reuse an existing stream_id or open a new WebSocket connection.",
            param="stream_id",
        )


class InvalidApiKey(InvalidRequest):
    """No key, or one that this server does not know."""

    status = 401
    code = "invalid_api_key"

    def __init__(self, given: bool) -> None:
        missing = "You didn't provide an API key. Provide it in an Authorization header: 'Bearer YOUR_KEY'."
        super().__init__("Incorrect API key provided." if given else missing)


class OriginNotAllowed(InvalidRequest):
    """A browser page of a foreign origin asked for the socket."""

    status = 403
    code = "origin_not_allowed"


class RouteNotFound(InvalidRequest):
    """The path is not one of this server's."""

    status = 404
    code = "unknown_url"

    def __init__(self, method: str, path: str, hint: str = "") -> None:
        shown = f"Invalid URL ({method} {path})"
        super().__init__(f"{shown}. {hint}" if hint else shown)


class MethodNotAllowed(InvalidRequest):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, path: str, hint: str = "") -> None:
        super().__init__(f"Method {method} is not allowed for {path}. {hint}".rstrip())


class PayloadTooLarge(InvalidRequest):
    """The body or message is over the documented limit, counted in bytes after decompression."""

    status = 413
    code = "payload_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request is larger than the limit of {limit} bytes.")


class WebSocketDisabled(InvalidRequest):
    """The server was started without WebSocket; clients go on over HTTP."""

    status = 426
    code = "websocket_disabled"
    sentence = "WebSocket mode is switched off on this server. Use HTTP."
