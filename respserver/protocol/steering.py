"""Steering: user messages for a response that still runs (protocol.md section 2.3).

What is accepted waits on the target's lane. It is followed by a successor that the server creates by itself, or, if the
target ends and the client owes it outputs, by the create that brings these. Whatever happens, a submission that was
accepted comes to exactly one end: committed, when the response that takes it is created, or failed, and then its input
goes back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NoReturn

import msgspec
from msgspec import Raw

from respserver.errors import (
    ApiError,
    ResponseAlreadyCompleted,
    ResponseNotActive,
    SteeringNotSupported,
    SteerTargetNotFound,
    SuccessorFailed,
    TooManySteers,
)
from respserver.protocol.states import STEERING, SteerMove, SteerState
from respserver.schema.events import (
    RequiredInput,
    SteerAccepted,
    SteerEcho,
    SteerError,
    SteerFailed,
    SteerId,
    SteerPending,
)
from respserver.schema.items import InputItem

MAX_ENDED = 64
"""Responses of a lane that are remembered once they have ended, to tell late steering why it fails."""
NOTHING = Raw(b"[]")
"""What goes back if no input was given."""


class Steer(msgspec.Struct, kw_only=True):
    """One submission."""

    id: str
    response_id: str
    """The target's."""
    items: list[InputItem]
    input: Raw
    """Just as it was sent."""
    size: int
    """Characters of its frame."""
    state: SteerState = SteerState.QUEUED

    def move(self, move: SteerMove) -> None:
        """Take a step of the table."""
        self.state = STEERING[self.state, move]


class Ended(msgspec.Struct):
    """A response that has ended: how, and the number that an event about it would have."""

    completed: bool
    next_number: int


class Steering:
    """The submissions of one lane. At most ``limit`` of them wait."""

    def __init__(self, limit: int) -> None:
        self.target: str | None = None
        """The response that runs, once its client can know of it."""
        self.queued: list[Steer] = []
        """For the response that runs, or that has just ended."""
        self.ended: OrderedDict[str, Ended] = OrderedDict()
        self.on_queued: Callable[[], None] | None = None
        """Called when input is queued, by whoever may have to stop a wait for that."""
        self.is_supported = True
        """Whether input may come for the response that runs."""
        self._owing: dict[str, list[Steer]] = {}
        """By the response that has ended and is owed outputs."""
        self._limit = limit

    @property
    def size(self) -> int:
        """Characters of what waits."""
        return sum(steer.size for steer in self._all())

    def knows(self, response_id: str) -> bool:
        """Whether the response is, or was, one of this lane."""
        return response_id == self.target or response_id in self.ended

    def open(self, response_id: str, *, is_supported: bool, commits: list[Steer]) -> None:
        """A response is created, and ``commits`` are part of its input."""
        for steer in commits:
            steer.move(SteerMove.COMMIT)
        if commits:
            self._forget(commits)
        self.target, self.is_supported = response_id, is_supported

    def end(self, *, completed: bool, next_number: int) -> None:
        """The response that runs has ended; its steering comes too late from now on."""
        if self.target is not None:
            self.ended[self.target] = Ended(completed, next_number)
            self.target = None
            if len(self.ended) > MAX_ENDED:
                self._forget_oldest()

    def accept(self, steer: Steer) -> SteerAccepted:
        """Queue a submission for the response that runs. Raises ``InvalidRequest``."""
        if steer.response_id != self.target:
            self._refuse_late(steer.response_id)
        if not self.is_supported:
            raise SteeringNotSupported(steer.response_id)
        if len(self._all()) >= self._limit:
            raise TooManySteers(self._limit)
        self.queued.append(steer)
        if self.on_queued is not None:
            self.on_queued()
        return SteerAccepted(steer=SteerId(id=steer.id, previous_response_id=steer.response_id))

    def owe(self, response_id: str, required_input: list[RequiredInput]) -> list[SteerPending]:
        """The target has ended and is owed outputs: what is queued waits for the create that brings them."""
        steers, self.queued = self.queued, []
        for steer in steers:
            steer.move(SteerMove.OWE)
        self._owing[response_id] = steers
        return [
            SteerPending(
                steer=SteerId(id=steer.id, previous_response_id=steer.response_id), required_input=required_input
            )
            for steer in steers
        ]

    def owed(self, response_id: str | None) -> list[Steer]:
        """What waits for the create that goes on from this response."""
        return list(self._owing.get(response_id, ())) if self._owing and response_id is not None else []

    def warmed_up(self, parent_id: str | None, response_id: str) -> None:
        """A warm-up brought the outputs and sampled nothing: what waited goes on waiting, for whoever continues it."""
        if parent_id is not None and parent_id in self._owing:
            self._owing[response_id] = self._owing.pop(parent_id)

    def fail(self, steers: list[Steer]) -> list[SteerFailed]:
        """Give input back that cannot be followed."""
        for steer in steers:
            steer.move(SteerMove.FAIL)
        self._forget(steers)
        return [failed(steer.response_id, steer.input, SuccessorFailed(), steer.id) for steer in steers]

    def _forget_oldest(self) -> None:
        """Forget the response that ended first, but for those about whose steering there is more to tell."""
        told_of = {steer.response_id for steer in self._all()}
        oldest = next((response_id for response_id in self.ended if response_id not in told_of), None)
        if oldest is not None:
            del self.ended[oldest]

    def _forget(self, steers: list[Steer]) -> None:
        self.queued = [steer for steer in self.queued if steer not in steers]
        for response_id in [key for key, waiting in self._owing.items() if waiting == steers]:
            del self._owing[response_id]

    def _all(self) -> list[Steer]:
        return [*self.queued, *(steer for steers in self._owing.values() for steer in steers)]

    def _refuse_late(self, response_id: str) -> NoReturn:
        ended = self.ended.get(response_id)
        if ended is None:
            raise SteerTargetNotFound(response_id)
        raise (ResponseAlreadyCompleted if ended.completed else ResponseNotActive)(response_id)


def failed(response_id: str, given: Raw, error: ApiError, steer_id: str | None = None) -> SteerFailed:
    """``response.steer.failed`` with the input as it came; ``steer_id`` if it had been accepted."""
    steer = SteerEcho(input=given, previous_response_id=response_id)
    if steer_id is not None:
        steer.id = steer_id
    return SteerFailed(steer=steer, error=SteerError(code=error.code, message=error.message))
