"""How many turns of the process run at once, who waits for a slot, and how many rollouts stand suspended.

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
    """The slots of a process. ``active`` turns may run, 0 is no limit; beyond them ``waiting`` turns may wait. When as
    many do, a tenant with few of them still gets in, in the place of another's newest (``Line.make_room``).

    Rollouts that go on after a pause come first and are never refused: they hold memory, and their client has been
    promised an end. Among themselves both kinds are served fairly (``Line``).
    """

    def __init__(self, active: int, waiting: int, metrics: Metrics) -> None:
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
        return len(self._resuming) + len(self._beginning)

    def slot(self, tenant: str, connection: str) -> Slot:
        """A slot for one turn of a connection; it is not taken yet."""
        return Slot(self, tenant, connection)

    def take_free(self) -> bool:
        """Take a slot if one is free: then nobody waits."""
        if self.active >= self._limit:
            return False
        self.active += 1
        return True

    async def wait_to_begin(self, tenant: str, connection: str) -> None:
        """Wait for a slot. Raises ``ServerBusy`` if too many wait already, or once the place goes to another tenant."""
        if len(self._beginning) >= self._max_waiting and not self._beginning.make_room(tenant):
            raise ServerBusy(self._max_waiting)
        self._metrics.turns_waited += 1
        if not await self._beginning.wait(tenant, connection):
            raise ServerBusy(self._max_waiting)

    async def wait_to_go_on(self, tenant: str, connection: str) -> None:
        """Wait for a slot ahead of all turns that have not begun."""
        await self._resuming.wait(tenant, connection)

    def give_back(self) -> None:
        """Hand a slot to whoever is next, or leave it free."""
        if not (self._resuming.wake_next() or self._beginning.wake_next()):
            self.active -= 1


class Slot:
    """What one turn has of the slots: one or none. Giving back what is not held does nothing."""

    def __init__(self, slots: TurnSlots, tenant: str, connection: str) -> None:
        self._slots = slots
        self._tenant = tenant
        self._connection = connection
        self._held = False

    async def take(self) -> None:
        """Take a slot, at once and without a checkpoint if one is free. Raises ``ServerBusy``."""
        if not self._slots.take_free():
            await self._slots.wait_to_begin(self._tenant, self._connection)
        self._held = True

    async def take_again(self) -> None:
        """Take a slot to go on after a pause, likewise."""
        if not self._slots.take_free():
            await self._slots.wait_to_go_on(self._tenant, self._connection)
        self._held = True

    def give_back(self) -> None:
        """The turn does not run any more, or pauses."""
        if self._held:
            self._held = False
            self._slots.give_back()


class Line:
    """Tasks that wait, served in turn: tenant by tenant, and within a tenant connection by connection.

    Who has been served, or comes anew, stands at the end. So while a connection's first task waits, each other
    connection of its tenant is served once at most, and between two of its tenant's each other tenant once.
    """

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, deque[_Place]]] = OrderedDict()
        self._lengths: Counter[str] = Counter()
        self._arrived = 0

    def __len__(self) -> int:
        return self._lengths.total()

    async def wait(self, tenant: str, connection: str) -> bool:
        """Wait to be woken: True when it is one's turn, False if sent away. A wait that is cancelled leaves the line;
        one that was woken cannot be cancelled."""
        self._arrived += 1
        place = _Place(tenant, connection, self._arrived)
        connections = self._tenants.setdefault(tenant, OrderedDict())
        connections.setdefault(connection, deque()).append(place)
        self._lengths[tenant] += 1

        def leave(_: object) -> trio.lowlevel.Abort:
            self._remove(place)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return place.is_served

    def wake_next(self) -> bool:
        """Wake the task whose turn it is; False if nobody waits."""
        if not self._tenants:
            return False
        tenant, connections = next(iter(self._tenants.items()))
        connection, places = next(iter(connections.items()))
        place = places[0]
        connections.move_to_end(connection)
        self._tenants.move_to_end(tenant)
        self._remove(place)
        place.is_served = True
        trio.lowlevel.reschedule(place.task)
        return True

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
