"""What every turn of a process shares, made once in ``server.py``; and what one connection brings to its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import trio

from respserver.config import Config
from respserver.errors import ApiError
from respserver.metrics import Metrics
from respserver.protocol.chain import Pause
from respserver.protocol.lane import Lane
from respserver.schema.events import Event, ResponseDone
from respserver.schema.items import InputItem
from respserver.store.base import Store
from respserver.tools.base import Host
from respserver.turn.kept import KeptContexts
from respserver.turn.postinference import PostInference
from respserver.turn.rates import Rates
from respserver.turn.routing import KeptRoute, Router
from respserver.turn.safety import Screening
from respserver.turn.sealing import Sealer
from respserver.turn.slots import Suspensions, TurnSlots
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.tokencache import TokenCache
from respserver.turn.toolboxes import Toolboxes


class Services(msgspec.Struct, kw_only=True):
    """The process's shared parts. Clocks and ids are arguments, so that tests choose them."""

    config: Config
    store: Store
    router: Router
    post: PostInference
    metrics: Metrics
    token_cache: TokenCache
    kept: KeptContexts
    screening: Screening
    sealer: Sealer
    hosts: Mapping[str, Host]
    """Who runs the server's own tools, by the kind of their definition."""
    rates: Rates
    slots: TurnSlots
    suspensions: Suspensions
    """Rollouts of the process that stand suspended."""
    new_id: Callable[[str], str]
    """Makes an id with the given prefix."""
    now: Callable[[], float]
    """Wall clock, in seconds since 1970."""
    clock: Callable[[], float]
    """Measures how long a turn's stages take, in seconds since whenever."""
    padding: Callable[[int], str]
    """A random string of so many characters, for ``obfuscation``."""
    tokenise_limiter: trio.CapacityLimiter
    """How many tokenising threads may run at once."""


class Port(Protocol):
    """A turn's way to its client. Sending never waits; ``drain`` and ``suspend`` are the places that do."""

    lane: Lane
    tenant: str
    transport: str
    """``websocket``, ``sse`` or ``json``, for the log."""
    connection_id: str
    own_slots: TurnSlots | None
    """How many turns of the connection run at once, if it has several lanes."""
    kept_route: KeptRoute
    toolboxes: Toolboxes
    """The hosted tools that the connection has opened."""
    keeps_context: bool
    """Whether the chain's buffer lives on after the turn (a socket) or not (an HTTP request)."""

    def send(self, events: list[Event]) -> None:
        """Number, encode and write events that are due together."""
        ...

    def send_failure(self, events: list[Event], error: ApiError) -> None:
        """Send the events of a failure, ``response.failed`` last, in the way of the transport."""
        ...

    async def drain(self) -> None:
        """Wait while the client is too far behind."""
        ...

    async def suspend(self, done: ResponseDone, pause: Pause, watch: Stopwatch) -> list[InputItem]:
        """Send ``response.done`` and wait for what the client appends. Raises ``ToolTimeout``, and
        ``TooManySuspended`` before anything is sent.

        ``watch`` is told when the client's time begins and ends.
        """
        ...
