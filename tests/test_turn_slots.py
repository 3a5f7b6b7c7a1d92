"""Slots of the process: who runs, who waits, in which order, and that none is ever lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.errors import ServerBusy, TooManySuspended
from respserver.metrics import Metrics
from respserver.turn.slots import Line, Suspensions, TurnSlots
from tests.support.talk import settled

FAIR = 1
"""How often another client may be served while one waits."""


class Turn:
    """A turn that does what it is told: it runs, pauses, goes on and ends, or is cancelled at any time."""

    def __init__(self, slots: TurnSlots, tenant: str, connection: str, log: list[Turn] | None = None) -> None:
        self.tenant = tenant
        self.connection = f"{tenant}/{connection}"
        self.state = "new"
        self._slot = slots.slot(tenant, self.connection)
        self._log = [] if log is None else log
        self._scope = trio.CancelScope()
        self._tell, self._told = trio.open_memory_channel[str](2)

    async def run(self) -> None:
        with self._scope:
            try:
                self.state = "waits"
                await self._slot.take()
                self._begin()
                while await self._told.receive() == "pause":
                    self._slot.give_back()
                    self.state = "paused"
                    await self._told.receive()
                    self.state = "waits to go on"
                    await self._slot.take_again()
                    self._begin()
            except ServerBusy:
                self.state = "refused"
            finally:
                self._slot.give_back()
                self.state = "refused" if self.state == "refused" else "over"

    def tell(self, word: str) -> None:
        """``pause`` and ``end`` to one that runs, ``go on`` to one that is paused."""
        self._tell.send_nowait(word)

    def leave(self) -> None:
        self._scope.cancel()

    def _begin(self) -> None:
        self._log.append(self)
        self.state = "runs"


async def test_a_free_slot_is_taken_without_letting_anybody_else_run() -> None:
    slots = TurnSlots(2, 0, Metrics())
    with trio.testing.assert_no_checkpoints():
        one, two = slots.slot("a", "1"), slots.slot("a", "2")
        await one.take()
        await two.take()
        two.give_back()
        await two.take_again()
        one.give_back()
        two.give_back()
    assert slots.active == 0


async def test_what_is_given_back_twice_is_one_slot() -> None:
    slots = TurnSlots(1, 0, Metrics())
    slot = slots.slot("a", "1")
    slot.give_back()
    await slot.take()
    slot.give_back()
    slot.give_back()
    assert slots.active == 0


async def test_without_a_limit_nobody_waits() -> None:
    slots = TurnSlots(0, 0, Metrics())
    for number in range(5000):
        await slots.slot("a", str(number)).take()
    assert (slots.active, slots.waiting) == (5000, 0)


@pytest.mark.parametrize("waiting", [0, 2])
async def test_a_full_line_refuses_at_once_and_says_when_to_come_back(waiting: int) -> None:
    metrics = Metrics()
    slots = TurnSlots(1, waiting, metrics)
    async with trio.open_nursery() as nursery:
        for number in range(1 + waiting):
            nursery.start_soon(Turn(slots, "a", str(number)).run)
        await settled()
        with pytest.raises(ServerBusy) as caught:
            await slots.slot("a", "9").take()
        assert (caught.value.status, caught.value.headers) == (429, {"retry-after": "1"})
        assert (slots.active, slots.waiting, metrics.turns_waited) == (1, waiting, waiting)
        nursery.cancel_scope.cancel()


async def test_a_crowd_keeps_no_other_tenant_out_and_loses_its_newest() -> None:
    slots = TurnSlots(1, 3, Metrics())
    async with trio.open_nursery() as nursery:
        crowd = [Turn(slots, "many", connection) for connection in "0121"]
        for turn in crowd:
            nursery.start_soon(turn.run)
            await settled()
        few = Turn(slots, "few", "1")
        nursery.start_soon(few.run)
        await settled()
        assert [turn.state for turn in crowd] == ["runs", "waits", "waits", "refused"]
        assert (few.state, slots.waiting) == ("waits", 3)
        for tenant in ("few", "many"):  # they would only take each other's places from here on
            with pytest.raises(ServerBusy):
                await slots.slot(tenant, "9").take()
        few.leave()
        await settled()
        again = Turn(slots, "many", "9")
        nursery.start_soon(again.run)
        await settled()
        assert (again.state, slots.waiting) == ("waits", 3)
        nursery.cancel_scope.cancel()
    assert (slots.active, slots.waiting) == (0, 0)


async def test_who_is_sent_away_and_cancelled_in_the_same_moment_hears_that_the_server_is_busy() -> None:
    slots = TurnSlots(1, 2, Metrics())
    async with trio.open_nursery() as nursery:
        crowd = [Turn(slots, "many", connection) for connection in "012"]
        for turn in crowd:
            nursery.start_soon(turn.run)
            await settled()
        few = Turn(slots, "few", "1")
        assert slots._beginning.make_room("few")
        crowd[2].leave()
        nursery.start_soon(few.run)
        await settled()
        assert [turn.state for turn in [*crowd, few]] == ["runs", "waits", "refused", "waits"]
        assert (slots.active, slots.waiting) == (1, 2)
        nursery.cancel_scope.cancel()
    assert (slots.active, slots.waiting) == (0, 0)


async def test_a_rollout_that_goes_on_is_never_refused_and_comes_before_turns_that_have_not_begun() -> None:
    slots = TurnSlots(1, 1, Metrics())
    log: list[Turn] = []
    async with trio.open_nursery() as nursery:
        rollout, other, new = (Turn(slots, "a", name, log) for name in ("rollout", "other", "new"))
        nursery.start_soon(rollout.run)
        await settled()
        rollout.tell("pause")
        await settled()
        assert (rollout.state, slots.active) == ("paused", 0)
        for turn in (other, new):
            nursery.start_soon(turn.run)
            await settled()
        assert (other.state, new.state) == ("runs", "waits")
        rollout.tell("go on")
        await settled()
        assert rollout.state == "waits to go on"
        other.tell("end")
        await settled()
        assert (rollout.state, new.state) == ("runs", "waits")
        rollout.tell("end")
        await settled()
        new.tell("end")
    assert log == [rollout, other, rollout, new]
    assert slots.active == 0


async def test_who_has_many_turns_waiting_does_not_hold_up_who_has_one() -> None:
    slots = TurnSlots(1, 1000, Metrics())
    log: list[Turn] = []
    async with trio.open_nursery() as nursery:
        turns = [Turn(slots, "many", "1", log) for _ in range(64)]
        turns += [Turn(slots, "few", "1", log), Turn(slots, "many", "2", log)]
        for turn in turns:
            nursery.start_soon(turn.run)
            await settled()
        for turn in turns:
            turn.tell("end")
    assert [turn.connection for turn in log[:5]] == ["many/1", "many/1", "few/1", "many/2", "many/1"]
    assert len(log) == 66


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_a_turn_that_is_cancelled_as_its_slot_comes_loses_none(leaves_first: bool) -> None:
    slots = TurnSlots(1, 10, Metrics())
    async with trio.open_nursery() as nursery:
        first, second, third = (Turn(slots, "a", str(number)) for number in range(3))
        for turn in (first, second, third):
            nursery.start_soon(turn.run)
            await settled()
        if leaves_first:
            second.leave()
        slots.give_back()  # on behalf of the first, in the same moment
        second.leave()
        await settled()
        assert (second.state, third.state) == ("over", "runs")
        assert (slots.active, slots.waiting) == (1, 0)
        nursery.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------------------ any order


class World:
    """Turns under any orders, and what must hold after each."""

    def __init__(self, nursery: trio.Nursery, limit: int) -> None:
        self.slots = TurnSlots(limit, 10_000, Metrics())
        self.turns: list[Turn] = []
        self._nursery = nursery
        self._limit = limit
        self._log: list[Turn] = []
        self._overtaken: dict[Turn, Counter[str]] = {}
        """By a turn that waits as the first of its connection: how often each other client was served meanwhile."""

    def those(self, *states: str) -> list[Turn]:
        return [turn for turn in self.turns if turn.state in states]

    async def obey(self, order: str, number: int, client: tuple[str, str]) -> None:
        before = len(self._log)
        new_may_begin = not self.those("waits to go on")
        chosen = self._chosen(order, number)
        if order == "come":
            turn = Turn(self.slots, *client, self._log)
            self.turns.append(turn)
            self._nursery.start_soon(turn.run)
        elif chosen is not None and order == "leave":
            chosen.leave()
        elif chosen is not None:
            chosen.tell(order)
        waiting_before = self.those("waits")
        await settled()
        begun = [turn for turn in self._log[before:] if turn in waiting_before]
        assert new_may_begin or not begun
        self._count(begun)
        self._check()

    def _chosen(self, order: str, number: int) -> Turn | None:
        states = {
            "pause": ("runs",),
            "end": ("runs",),
            "go on": ("paused",),
            "leave": ("runs", "paused", "waits", "waits to go on"),
        }
        found = self.those(*states.get(order, ()))
        return found[number % len(found)] if found else None

    def _count(self, begun: list[Turn]) -> None:
        firsts: dict[str, Turn] = {}
        for turn in self.those("waits"):
            firsts.setdefault(turn.connection, turn)
        self._overtaken = {turn: self._overtaken.get(turn, Counter()) for turn in firsts.values()}
        for served in begun:
            for turn, counts in self._overtaken.items():
                if turn.tenant != served.tenant:
                    counts[served.tenant] += 1
                    continue
                assert turn.connection != served.connection or self.turns.index(served) < self.turns.index(turn)
                if turn.connection != served.connection:
                    counts[served.connection] += 1
                for tenant in {other.tenant for other in self.turns} - {turn.tenant}:
                    counts[tenant] = 0  # its tenant's turn has come and gone
        for counts in self._overtaken.values():
            assert max(counts.values(), default=0) <= FAIR

    def _check(self) -> None:
        running, waiting = self.those("runs"), self.those("waits", "waits to go on")
        assert self.slots.active == len(running) <= self._limit
        assert self.slots.waiting == len(waiting)
        assert not waiting or len(running) == self._limit, "a slot is free while somebody waits"


CLIENTS = st.tuples(st.sampled_from("ab"), st.sampled_from("12"))
ORDERS = st.tuples(
    st.sampled_from(["come", "come", "end", "end", "end", "pause", "go on", "leave"]), st.integers(0, 50), CLIENTS
)


@settings(max_examples=40)
@given(limit=st.integers(1, 3), crowd=st.lists(CLIENTS, min_size=10, max_size=20), orders=st.lists(ORDERS, max_size=40))
@pytest.mark.slow
def test_whatever_comes_pauses_and_leaves_no_slot_is_lost_and_nobody_is_overtaken_twice(
    limit: int, crowd: list[tuple[str, str]], orders: list[Any]
) -> None:
    """While a turn waits, no other client is served more than once: no other connection of its tenant, and between
    two turns of its tenant no other tenant."""

    async def play() -> None:
        async with trio.open_nursery() as nursery:
            world = World(nursery, limit)
            for order in [*(("come", 0, client) for client in crowd), *orders]:
                await world.obey(*order)
            nursery.cancel_scope.cancel()
        assert (world.slots.active, world.slots.waiting) == (0, 0)

    trio.run(play)


COMERS = st.lists(st.one_of(st.sampled_from("aaab"), st.sampled_from("abcd"), st.just("end")), max_size=40)


@settings(max_examples=60)
@given(room=st.integers(1, 6), orders=COMERS)
def test_a_full_line_refuses_one_for_one_and_only_who_has_most(room: int, orders: list[str]) -> None:
    """A tenant gets in as long as another one has at least two more waiting, and then that one's newest is refused. Who
    has a single turn waiting never loses it."""

    async def play() -> None:
        slots = TurnSlots(1, room, Metrics())
        turns: list[Turn] = []
        async with trio.open_nursery() as nursery:
            for number, order in enumerate(["a", *orders]):
                waiting = [turn for turn in turns if turn.state == "waits"]
                runs = [turn for turn in turns if turn.state == "runs"]
                refused = [turn for turn in turns if turn.state == "refused"]
                if order == "end":
                    for turn in runs:
                        turn.tell("end")
                else:
                    turns.append(Turn(slots, order, str(number)))
                    nursery.start_soon(turns[-1].run)
                await settled()
                newly = [turn for turn in turns if turn.state == "refused" and turn not in refused]
                if order == "end" or not runs or len(waiting) < room:
                    assert not newly
                    continue
                (loser,) = newly
                lengths = Counter(turn.tenant for turn in waiting)
                assert slots.waiting == room
                if lengths[order] + 1 < max(lengths.values()):
                    assert lengths[loser.tenant] == max(lengths.values()) > 1
                    assert loser is [turn for turn in waiting if turn.tenant == loser.tenant][-1]
                else:
                    assert loser is turns[-1]
            nursery.cancel_scope.cancel()
        assert (slots.active, slots.waiting) == (0, 0)

    trio.run(play)


async def test_a_line_forgets_whom_it_has_served() -> None:
    """Tenants and connections come from clients: what is left of them could fill the memory."""
    line = Line()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(line.wait, f"t{number % 3}", f"c{number}")
        await settled()
        assert line.size == 20
        for _ in range(10):
            line.wake_next()
        assert line.size == 10
        await settled()
        nursery.cancel_scope.cancel()
    assert line.size == 0
    assert not line._tenants
    assert not line._lengths


# ---------------------------------------------------------------------------------------------------- suspensions


def test_suspended_rollouts_are_counted_by_connection_and_for_the_process() -> None:
    process = Suspensions(3, "server")
    one, two = (Suspensions(2, "connection", process) for _ in range(2))
    with one, one:
        with pytest.raises(TooManySuspended, match="2 rollouts of this connection"), one:
            pass
        with two:
            with pytest.raises(TooManySuspended, match="3 rollouts of this server"), two:
                pass
            assert (one.count, two.count, process.count) == (2, 1, 3)
    assert (one.count, two.count, process.count) == (0, 0, 0)


def test_without_a_limit_any_number_may_be_suspended() -> None:
    endless = Suspensions(0, "server")
    for _ in range(5000):
        endless.__enter__()
    assert endless.count == 5000
