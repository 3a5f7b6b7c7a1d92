"""The errors that all others are kinds of, and how long what they say may be."""

from __future__ import annotations

MAX_MESSAGE = 1000
MAX_PARAM = 200
"""Messages quote what clients sent, which can be megabytes long."""
MAX_TOLD_MODELS = 8
RETRY_SOON = (("retry-after", "1"),)
"""Clients wait so many seconds and try again; without it some take a 429 for final."""


def _bounded(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class RespserverError(Exception):
    """Base of every error that respserver raises on purpose."""


class ConfigError(RespserverError):
    """A setting is wrong; ``option`` names it as the user wrote it."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(f"{option}: {problem}")


class ConnectionLost(RespserverError):
    """The connection broke, or never came to be. ``code`` is the WebSocket close code, if there was one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        self.code = code
        super().__init__(message)


class ApiError(RespserverError):
    """An error that a client is told.

    ``status`` is the HTTP status, also over WebSocket; ``code`` is never empty; ``param`` names the field, as in
    ``input[0].call_id``; ``headers`` are retry hints (``retry-after``).
    """

    status = 500
    type = "server_error"
    code = "server_error"
    sentence = "The server had an error while processing your request."
    """The message, if none is given."""
    hints: tuple[tuple[str, str], ...] = ()
    """The headers, if none are given."""
    is_passing = False
    """Whether the same request may well succeed in a moment: nothing of it was begun, and its parent stays known."""

    def __init__(
        self,
        message: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        status: int | None = None,
        type: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.message = _bounded(message or self.sentence, MAX_MESSAGE)
        self.param = None if param is None else _bounded(param, MAX_PARAM)
        self.code = code or self.code
        self.status = status or self.status
        self.type = type or self.type
        self.headers = dict(headers or self.hints)
        super().__init__(self.message)


class InvalidRequest(ApiError):
    """The request cannot be served as it stands."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"
