"""What the server cannot do right now, and what is its own fault."""

from __future__ import annotations

from respserver.errors.base import MAX_PARAM, RETRY_SOON, ApiError

_RATE_WORDS = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}


class ModelFault(ApiError):
    """The engine could not go on; ``code`` is the ``error.code`` that the failed response carries."""

    def __init__(self, message: str, code: str = "server_error", status: int = 500) -> None:
        super().__init__(message, code=code, status=status)


class QueueFull(ApiError):
    """Too many creates wait on the connection; the socket stays open."""

    status = 429
    is_passing = True
    type = "rate_limit_error"
    code = "queue_full"
    hints = RETRY_SOON

    def __init__(self, waiting: int, *, size: int | None = None) -> None:
        """``size`` is how many bytes they may hold, if that is the bound."""
        full = f"{waiting} requests already wait on this connection."
        if size is not None:
            full = f"The requests of this connection that run or wait may hold {size} bytes together."
        super().__init__(f"{full} Try again when one has ended.")


class ServerBusy(ApiError):
    """Too many turns of the process wait for a slot; the refused one has touched nothing."""

    status = 429
    is_passing = True
    type = "rate_limit_error"
    code = "server_busy"
    hints = RETRY_SOON

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests already wait on this server. Try again in a moment.")


class RateLimitExceeded(ApiError):
    """A key's tenant has used up its ``requests`` or ``tokens`` of the minute; the refused turn has touched nothing.

    ``headers`` are told beside the retry hints. Clients read ``wait``, in seconds, out of the message as well, and only
    if it is written as seconds.
    """

    status = 429
    is_passing = True
    code = "rate_limit_exceeded"

    def __init__(
        self,
        kind: str,
        *,
        model: str,
        tenant: str,
        limit: int,
        used: int,
        wait: float,
        headers: dict[str, str] | None = None,
    ) -> None:
        milliseconds = max(1, -int(-round(wait * 1000, 3) // 1))
        self.wait = milliseconds / 1000
        hints = {"retry-after": str(-(-milliseconds // 1000)), "retry-after-ms": str(milliseconds)}
        super().__init__(
            f"Rate limit reached for {model[:MAX_PARAM]} in organization {tenant} on {_RATE_WORDS[kind]}: "
            f"Limit {limit}, Used {used}, Requested 1. Please try again in {_seconds(milliseconds)}s.",
            type=kind,
            headers=hints | (headers or {}),
        )


def _seconds(milliseconds: int) -> str:
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") if rest else str(whole)


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
