"""What the rules tell the shell: client events once they are read, and what is to be done about them."""

from __future__ import annotations

import msgspec

from respserver.errors import ApiError
from respserver.protocol.chain import Latest
from respserver.protocol.steering import Steer
from respserver.schema.items import InputItem
from respserver.schema.request import AppendRequest, CreateRequest


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """A ``response.create``. One that cannot be served is carried on with its ``error``: its refusal takes its place
    in the lane's order, so that it never stands between the events of a running turn."""

    request: CreateRequest | None
    previous_response_id: str | None = None
    model: str = ""
    """The name that was read before a fault was found; ``request`` has it otherwise."""
    error: ApiError | None = None
    size: int = 0
    """Length of the frame, in bytes: what waiting creates are bounded by, beside their number."""
    steers: list[Steer] = []
    """What the server itself goes on with, after a response that was steered: such a create is a successor."""


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """A ``response.append`` (prototype mode)."""

    request: AppendRequest


class Ignore(msgspec.Struct, frozen=True, kw_only=True):
    """An event that needs no answer (``response.processed``)."""

    type: str


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Send this message: what became of steering input."""

    message: bytes


class StartTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Run a turn. ``parent`` is the connection's own; ``hydrate`` names one that must be loaded from the store."""

    request: CreateRequest
    parent: Latest | None = None
    is_fork: bool = False
    """Whether ``parent`` is another lane's, which keeps it: this turn goes on from a copy (protocol.md section 1.9)."""
    hydrate: str | None = None
    steers: list[Steer] = []
    """Steering input that comes before the request's own items."""


class ResumeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Wake the suspended turn: ``items`` are all outputs in call order, then user messages."""

    items: list[InputItem]


class AwaitOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """The append was taken, and outputs are still missing: nothing is sent, nothing runs."""

    missing: list[str]


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """Send one error frame; nothing else changes."""

    error: ApiError
    stream_id: str | None = None
    """The named lane that the message was for, which the frame echoes."""
    create: Create | None = None
    """The create that is refused with it: it counts as a turn that was refused. Other messages count as nothing."""
