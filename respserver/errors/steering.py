"""Why steering input cannot be queued or followed: what ``response.steer.failed`` tells (protocol.md section 2.3)."""

from __future__ import annotations

from respserver.errors.base import InvalidRequest


class InvalidSteer(InvalidRequest):
    """The event breaks its schema; ``problem`` is the message of the error that says where."""

    code = "invalid_input"

    def __init__(self, problem: str) -> None:
        super().__init__(problem, param="input")


class SteerTargetNotFound(InvalidRequest):
    """No response of this connection has the id, or none that it remembers."""

    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id}' not found on this connection.")


class SteeringNotSupported(InvalidRequest):
    """The route, or this kind of turn, takes no steering."""

    code = "steering_not_supported"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response '{response_id}' does not support steering.")


class TooManySteers(InvalidRequest):
    """As much steering input as may wait on a lane waits there."""

    code = "too_many_pending_steers"

    def __init__(self, limit: int, *, size: int | None = None) -> None:
        """``size`` is how many bytes the connection's requests and steering may hold, if that is the bound."""
        full = f"At most {limit} submissions may wait on a lane."
        if size is not None:
            full = f"The requests and the steering input of this connection may hold {size} bytes together."
        super().__init__(f"Too much steering input is waiting. {full}")


class ResponseAlreadyCompleted(InvalidRequest):
    """The target came to its end before the steering input came."""

    code = "response_already_completed"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response '{response_id}' has already completed.")


class ResponseNotActive(InvalidRequest):
    """The target failed or was cut before the steering input came."""

    code = "response_not_active"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response '{response_id}' is no longer active.")


class SuccessorFailed(InvalidRequest):
    """Input that was accepted cannot be followed."""

    code = "successor_creation_failed"
    sentence = "We couldn't start the next response. Send this steering input again with response.create."
