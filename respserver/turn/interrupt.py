"""How a running turn is ended from outside (shutdown, the age limit): with a reason, and still with its terminal."""

from __future__ import annotations

import trio

from respserver.errors import ApiError


class Interrupt:
    """One per turn. ``fire`` cancels the turn's work; the turn then fails with the given error."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.scope = trio.CancelScope()
        self.is_waiting = False
        """Whether the turn waits for a slot and has not begun."""

    def fire(self, error: ApiError) -> None:
        """End the turn with this error, now or as soon as it begins."""
        if self.error is None:
            self.error = error
            self.scope.cancel()

    def dismiss(self, error: ApiError) -> None:
        """Refuse the turn with this error if it still waits; one that runs has its grace time."""
        if self.is_waiting:
            self.fire(error)
