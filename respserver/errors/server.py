"""What the server cannot do right now, and what is its own fault."""

from __future__ import annotations

from respserver.errors.base import RETRY_SOON, ApiError


class ModelFault(ApiError):
    """The engine could not go on; ``code`` is the ``error.code`` that the failed response carries."""

    def __init__(self, message: str, code: str = "server_error", status: int = 500) -> None:
        super().__init__(message, code=code, status=status)


class QueueFull(ApiError):
    """Too many creates wait on the connection; the socket stays open."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    hints = RETRY_SOON

    def __init__(self, waiting: int, size: int | None = None) -> None:
        bound = "" if size is None else f", and together they may hold {size} characters"
        super().__init__(f"{waiting} requests already wait on this connection{bound}. Try again when one has ended.")


class ServerBusy(ApiError):
    """Too many turns of the process wait for a slot; the refused one has touched nothing."""

    status = 429
    type = "rate_limit_error"
    code = "server_busy"
    hints = RETRY_SOON

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests already wait on this server. Try again in a moment.")


class TooManySuspended(ApiError):
    """A rollout would suspend where as many as may are suspended (prototype mode); ``owner`` says of what."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_suspended_rollouts"

    def __init__(self, limit: int, owner: str) -> None:
        super().__init__(f"{limit} rollouts of this {owner} already wait for tool outputs, and no more may.")


class ServerError(ApiError):
    """Our fault; the message tells nothing of our inside."""


class ToolTimeout(ServerError):
    """The client did not send the tool outputs in time (prototype mode)."""

    code = "tool_timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"No response.append with the pending tool outputs came within {seconds:g} seconds.")


class ScreeningFailed(ServerError):
    """A classifier that must speak could not be asked, and the settings say to refuse then."""

    status = 503
    code = "screening_failed"
    sentence = "The input could not be screened. Please try again."
    hints = RETRY_SOON


class ShuttingDown(ServerError):
    """The server is going down and takes or finishes no more work."""

    status = 503
    code = "server_shutting_down"
    sentence = "The server is shutting down. Please try again on a new connection."
