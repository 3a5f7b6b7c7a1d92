"""How many turns of the process run at once, who waits for a slot, and how many rollouts stand suspended.

A turn takes a slot before it is admitted and gives it back at its end; while it stands suspended it has none. A slot
that comes free is handed over on the spot, so that one is free only while nobody waits, and taking it then is a
comparison and an addition. No clock here, and nothing is known of what a turn does.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque

import trio

from respserver.errors import ServerBusy, TooManySuspended
from respserver.metrics import Metrics


class TurnSlots:
    """The slots of a process. ``active`` turns may run, 0 is no limit; beyond them ``waiting`` turns may wait.

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
        """Wait for a slot. Raises ``ServerBusy`` if too many wait already."""
        if len(self._beginning) >= self._max_waiting:
            raise ServerBusy(self._max_waiting)
        self._metrics.turns_waited += 1
        await self._beginning.wait(tenant, connection)

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
        self._tenants: OrderedDict[str, OrderedDict[str, deque[trio.lowlevel.Task]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    async def wait(self, tenant: str, connection: str) -> None:
        """Wait to be woken. A wait that is cancelled leaves the line; one that was woken cannot be cancelled."""
        task = trio.lowlevel.current_task()
        connections = self._tenants.setdefault(tenant, OrderedDict())
        connections.setdefault(connection, deque()).append(task)
        self._length += 1

        def leave(_: object) -> trio.lowlevel.Abort:
            self._remove(tenant, connection, task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    def wake_next(self) -> bool:
        """Wake the task whose turn it is; False if nobody waits."""
        if not self._tenants:
            return False
        tenant, connections = self._tenants.popitem(last=False)
        connection, tasks = connections.popitem(last=False)
        task = tasks.popleft()
        if tasks:
            connections[connection] = tasks
        if connections:
            self._tenants[tenant] = connections
        self._length -= 1
        trio.lowlevel.reschedule(task)
        return True

    def _remove(self, tenant: str, connection: str, task: trio.lowlevel.Task) -> None:
        connections = self._tenants[tenant]
        connections[connection].remove(task)
        if not connections[connection]:
            del connections[connection]
        if not connections:
            del self._tenants[tenant]
        self._length -= 1


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
