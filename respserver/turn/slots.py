"""How many turns of the process, and of a connection, run at once, who waits for a slot, and how many rollouts stand
suspended.

A turn takes a slot before it is admitted and gives it back at its end; while it stands suspended it has none. A slot
that comes free is handed over on the spot, so that one is free only while nobody waits, and taking it then is a
comparison and an addition. No clock here, and nothing is known of what a turn does.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque

import trio

from respserver.errors import ServerBusy, TooManySuspended
from respserver.metrics import Metrics


class TurnSlots:
    """The slots of a process or of one connection. ``active`` turns may run, 0 is no limit; beyond them ``waiting``
    turns may wait. When as many do, a tenant with few of them still gets in, in the place of another's newest
    (``Line.make_room``).

    Rollouts that go on after a pause come first and are never refused: they hold memory, and their client has been
    promised an end. Among themselves both kinds are served fairly (``Line``).
    """

    def __init__(self, active: int, waiting: float, metrics: Metrics) -> None:
        self.active = 0
        """Slots that are held."""
        self._limit = active or math.inf
        self._max_waiting = waiting
        self._metrics = metrics
        self._resuming = Line()
        self._beginning = Line()

    @property
    def waiting(self) -> int:
        """Turns and rollouts that wait for a slot."""
        return self._resuming.size + self._beginning.size

    def slot(self, tenant: str, connection: str, own: TurnSlots | None = None) -> Slot:
        """A slot for one turn of a connection; it is not taken yet. ``own`` are the connection's, if it has several
        lanes: one of them is taken first, so that a connection waits here with no more turns than may run at once."""
        return Slot((self,) if own is None else (own, self), tenant, connection)

    def take_free(self) -> bool:
        """Take a slot if one is free: then nobody waits."""
        if self.active >= self._limit:
            return False
        self.active += 1
        return True

    async def wait_to_begin(self, tenant: str, connection: str) -> None:
        """Wait for a slot. Raises ``ServerBusy`` if too many wait already, or once the place goes to another tenant."""
        if self._beginning.size >= self._max_waiting and not self._beginning.make_room(tenant):
            raise ServerBusy(int(self._max_waiting))
        self._metrics.turns_waited += 1
        if not await self._beginning.wait(tenant, connection):
            raise ServerBusy(int(self._max_waiting))

    async def wait_to_go_on(self, tenant: str, connection: str) -> None:
        """Wait for a slot ahead of all turns that have not begun."""
        await self._resuming.wait(tenant, connection)

    def give_back(self) -> None:
        """Hand a slot to whoever is next, or leave it free."""
        if self._resuming.size:
            self._resuming.wake_next()
        elif self._beginning.size:
            self._beginning.wake_next()
        else:
            self.active -= 1


class Slot:
    """What one turn has of the slots: one of each kind, or some, or none. Giving back what is not held does nothing."""

    def __init__(self, kinds: tuple[TurnSlots, ...], tenant: str, connection: str) -> None:
        self._kinds = kinds
        self._tenant = tenant
        self._connection = connection
        self._held = 0

    async def take(self) -> None:
        """Take a slot of each kind, at once and without a checkpoint if they are free. Raises ``ServerBusy``."""
        for slots in self._kinds:
            if not slots.take_free():
                await slots.wait_to_begin(self._tenant, self._connection)
            self._held += 1

    async def take_again(self) -> None:
        """Take them to go on after a pause, likewise."""
        for slots in self._kinds:
            if not slots.take_free():
                await slots.wait_to_go_on(self._tenant, self._connection)
            self._held += 1

    def give_back(self) -> None:
        """The turn does not run any more, or pauses."""
        while self._held:
            self._held -= 1
            self._kinds[self._held].give_back()


class Line:
    """Tasks that wait, served in turn: tenant by tenant, and within a tenant connection by connection.

    Who has been served, or comes anew, stands at the end. So while a connection's first task waits, each other
    connection of its tenant is served once at most, and between two of its tenant's each other tenant once.
    """

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, deque[_Place]]] = OrderedDict()
        self.size = 0
        """Tasks that wait."""
        self._lengths: Counter[str] = Counter()
        self._arrived = 0

    async def wait(self, tenant: str, connection: str) -> bool:
        """Wait to be woken: True when it is one's turn, False if sent away. A wait that is cancelled leaves the line;
        one that was woken cannot be cancelled."""
        self._arrived += 1
        place = _Place(tenant, connection, self._arrived)
        connections = self._tenants.setdefault(tenant, OrderedDict())
        connections.setdefault(connection, deque()).append(place)
        self._lengths[tenant] += 1
        self.size += 1

        def leave(_: object) -> trio.lowlevel.Abort:
            self._remove(place)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return place.is_served

    def wake_next(self) -> None:
        """Wake the task whose turn it is; there is one."""
        tenant, connections = next(iter(self._tenants.items()))
        connection, places = next(iter(connections.items()))
        place = places[0]
        connections.move_to_end(connection)
        self._tenants.move_to_end(tenant)
        self._remove(place)
        place.is_served = True
        trio.lowlevel.reschedule(place.task)

    def make_room(self, tenant: str) -> bool:
        """Send away the newest of the tenant that has most, if ``tenant`` will have fewer even with one more: so
        nobody's crowd keeps others out, and two tenants never take one place from each other in turn."""
        most = max(self._lengths, key=self._lengths.__getitem__, default=tenant)
        if self._lengths[tenant] + 1 >= self._lengths[most]:
            return False
        newest = max((places[-1] for places in self._tenants[most].values()), key=lambda place: place.number)
        self._remove(newest)
        trio.lowlevel.reschedule(newest.task)
        return True

    def _remove(self, place: _Place) -> None:
        connections = self._tenants[place.tenant]
        connections[place.connection].remove(place)
        if not connections[place.connection]:
            del connections[place.connection]
        if not connections:
            del self._tenants[place.tenant]
        self.size -= 1
        self._lengths[place.tenant] -= 1
        if not self._lengths[place.tenant]:
            del self._lengths[place.tenant]


class _Place:
    """Where the current task stands in a line; ``number`` counts all who ever came."""

    def __init__(self, tenant: str, connection: str, number: int) -> None:
        self.task = trio.lowlevel.current_task()
        self.tenant = tenant
        self.connection = connection
        self.number = number
        self.is_served = False


class Suspensions:
    """How many rollouts of a connection or of the process stand suspended; each is a ``with`` block, and none waits.

    Entering raises ``TooManySuspended`` if ``limit`` are in already, 0 is no limit. ``owner`` says whose they are;
    those of a connection count among the process's, ``within``.
    """

    def __init__(self, limit: int, owner: str, within: Suspensions | None = None) -> None:
        self.count = 0
        self._limit = limit
        self._owner = owner
        self._within = within

    def __enter__(self) -> None:
        if 0 < self._limit <= self.count:
            raise TooManySuspended(self._limit, self._owner)
        if self._within is not None:
            self._within.__enter__()
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if self._within is not None:
            self._within.__exit__()
