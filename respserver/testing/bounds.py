"""Checks for stores that forget: what goes unused, or what no longer fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

from respserver.store.base import Store
from respserver.testing.chains import (
    TENANT,
    continue_chain,
    make_state,
    require,
    require_chain,
    require_unknown,
    save_chain,
)


class OpenExpiringStore(Protocol):
    """Opens an empty store that forgets what goes unused."""

    async def __call__(self, *, max_idle_seconds: float, now: Callable[[], float]) -> Store:
        """``now`` is the only clock that counts, in seconds."""
        ...


class OpenBoundedStore(Protocol):
    """Opens an empty store that keeps no more than this."""

    async def __call__(self, *, max_responses: int, max_bytes: int) -> Store:
        """Whichever bound is met first holds."""
        ...


IDLE_SECONDS = 60.0
AMPLE = 1 << 30
CHUNK = 10_000
"""Size of a large record in the byte checks; a store may add up to a fifth to it."""


async def check_store_expiry(open_store: OpenExpiringStore) -> None:
    """Run the checks for stores that forget what goes unused. Raises ``AssertionError``."""
    for check in EXPIRY_CHECKS:
        await check(open_store)


async def check_store_bounds(open_store: OpenBoundedStore) -> None:
    """Run the checks for stores with bounds on records and bytes. Raises ``AssertionError``."""
    for check in BOUNDS_CHECKS:
        await check(open_store)


async def what_goes_unused_expires(open_store: OpenExpiringStore) -> None:
    """An unused chain is unknown after its time, whole; a used one isn't, and each way of using it counts."""
    clock = _Clock()
    async with aclosing(await open_store(max_idle_seconds=IDLE_SECONDS, now=clock)) as store:
        for chain in ("idle", "loaded", "hydrated", "continued"):
            await save_chain(store, f"{chain}1", f"{chain}2")
        clock.time += IDLE_SECONDS * 0.75
        await store.load("loaded1", TENANT)
        await store.load_chain("hydrated2", TENANT)
        await continue_chain(store, "continued2", "continued3")
        clock.time += IDLE_SECONDS * 0.75
        for name in ("idle1", "idle2"):
            await require_unknown(store, name, TENANT)
            require(await store.delete(name, TENANT) is False, "an expired id could be deleted")
        await require_chain(store, "loaded2", ["loaded1", "loaded2"])
        await require_chain(store, "hydrated2", ["hydrated1", "hydrated2"])
        await require_chain(store, "continued3", ["continued1", "continued2", "continued3"])


async def a_living_fork_keeps_an_expired_past(open_store: OpenExpiringStore) -> None:
    """What a used fork hangs on stays with it, however long nobody asked for the rest."""
    clock = _Clock()
    async with aclosing(await open_store(max_idle_seconds=IDLE_SECONDS, now=clock)) as store:
        await save_chain(store, "a", "b", "c")
        await continue_chain(store, "b", "c2")
        for _ in range(3):
            clock.time += IDLE_SECONDS * 0.75
            require(await store.load("c2", TENANT) is not None, "a used fork expired with the rest of its chain")
        await require_chain(store, "c2", ["a", "b", "c2"])


async def the_longest_unused_chain_makes_room(open_store: OpenBoundedStore) -> None:
    """Too many records: whole chains go, the longest unused first."""
    async with aclosing(await open_store(max_responses=6, max_bytes=AMPLE)) as store:
        await save_chain(store, "old1", "old2")
        await save_chain(store, "mid1", "mid2")
        await save_chain(store, "new1", "new2")
        await store.load("old1", TENANT)
        await store.save(make_state("more", None))
        await require_unknown(store, "mid1", TENANT)
        await require_unknown(store, "mid2", TENANT)
        await require_chain(store, "old2", ["old1", "old2"])
        await require_chain(store, "new2", ["new1", "new2"])
        await require_chain(store, "more", ["more"])


async def large_records_make_room(open_store: OpenBoundedStore) -> None:
    """Too many bytes: the same, also if a record grows by being replaced."""
    async with aclosing(await open_store(max_responses=1000, max_bytes=CHUNK * 4)) as store:
        for name in ("a", "b", "c", "d"):
            await store.save(make_state(name, None, response=b"x" * CHUNK))
        await require_unknown(store, "a", TENANT)
        await require_chain(store, "b", ["b"])
        await require_chain(store, "d", ["d"])
        await store.save(make_state("d", None, response=b"x" * CHUNK * 2))
        await require_unknown(store, "c", TENANT)
        await require_chain(store, "b", ["b"])
        await require_chain(store, "d", ["d"])


async def the_newest_record_is_kept(open_store: OpenBoundedStore) -> None:
    """A chain that outgrows the bounds by itself loses its past, not its end."""
    async with aclosing(await open_store(max_responses=3, max_bytes=AMPLE)) as store:
        await save_chain(store, "a", "b", "c", "d")
        require(await store.load("d", TENANT) is not None, "the newest record was not kept")
        for name in ("a", "b", "c"):
            await require_unknown(store, name, TENANT)
        require(await store.load_chain("d", TENANT) is None, "a chain was given out without its past")


class _Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


EXPIRY_CHECKS: tuple[Callable[[OpenExpiringStore], Awaitable[None]], ...] = (
    what_goes_unused_expires,
    a_living_fork_keeps_an_expired_past,
)
BOUNDS_CHECKS: tuple[Callable[[OpenBoundedStore], Awaitable[None]], ...] = (
    the_longest_unused_chain_makes_room,
    large_records_make_room,
    the_newest_record_is_kept,
)
