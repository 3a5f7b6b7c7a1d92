"""The memory store: all that every store must do, its bounds, its layout, and that nothing is held for nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from respserver.state import ResponseState, encode_state
from respserver.store.memory import ITEM_BYTES, MemoryStore
from respserver.testing import check_store, check_store_bounds, check_store_expiry
from respserver.testing.bounds import BOUNDS_CHECKS, EXPIRY_CHECKS
from respserver.testing.chains import (
    TENANT,
    continue_chain,
    ids_of,
    item_of,
    make_state,
    require_chain,
    require_unknown,
    save_chain,
)
from respserver.testing.checks import STORE_CHECKS

AMPLE = 1 << 30


def never() -> float:
    return 0.0


def make_store(
    *,
    max_responses: int = AMPLE,
    max_bytes: int = AMPLE,
    max_idle_seconds: float = AMPLE,
    now: Callable[[], float] = never,
) -> MemoryStore:
    return MemoryStore(max_responses=max_responses, max_bytes=max_bytes, max_idle_seconds=max_idle_seconds, now=now)


async def open_store(**bounds) -> MemoryStore:
    return make_store(**bounds)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_it_does_what_every_store_does(check):
    await check(open_store)


@pytest.mark.parametrize("check", EXPIRY_CHECKS + BOUNDS_CHECKS, ids=lambda check: check.__name__)
async def test_it_forgets_as_stores_do(check):
    await check(open_store)


async def test_the_three_entry_points_pass_it_as_a_whole():
    await check_store(open_store)
    await check_store_expiry(open_store)
    await check_store_bounds(open_store)


async def layout(store: MemoryStore, *names: str) -> list[tuple[str, int, str | None]]:
    states = [await store.load(name, TENANT) for name in names]
    return [(state.branch, state.position, state.fork_of) for state in states]


async def test_a_chain_lies_in_one_branch_and_a_fork_starts_another():
    store = make_store()
    await save_chain(store, "a", "b", "c")
    await continue_chain(store, "b", "c2", "d2")
    (main, *_), *_ = places = await layout(store, "a", "b", "c", "c2", "d2")
    fork = places[3][0]
    assert places == [(main, 0, None), (main, 1, None), (main, 2, None), (fork, 0, "b"), (fork, 1, None)]
    assert fork != main
    assert [(state.branch, state.position, state.fork_of) for state in await store.load_chain("d2", TENANT)] == [
        (main, 0, None),
        (main, 1, None),
        (fork, 0, "b"),
        (fork, 1, None),
    ]


async def test_the_savers_own_idea_of_the_layout_does_not_count():
    store = make_store()
    state = make_state("a", None)
    await store.save(ResponseState(**{**{f: getattr(state, f) for f in state.__struct_fields__}, "position": 9}))
    assert (await store.load("a", TENANT)).position == 0


async def test_the_place_of_a_deleted_tip_is_taken_again():
    store = make_store()
    await save_chain(store, "a", "b")
    await store.delete("b", TENANT)
    await continue_chain(store, "a", "b2")
    assert [position for _, position, _ in await layout(store, "a", "b2")] == [0, 1]


async def test_saving_an_id_with_another_parent_moves_it_and_leaves_its_children_their_past():
    store = make_store()
    await save_chain(store, "a", "b", "c")
    await save_chain(store, "x")
    await store.save(make_state("b", "x"))
    await require_chain(store, "b", ["x", "b"])
    assert ids_of(await store.load_chain("c", TENANT)) == ["a", "b", "c"]


async def test_a_state_that_names_itself_as_parent_is_an_orphan():
    store = make_store()
    await store.save(make_state("a", "a"))
    await store.save(make_state("a", "a"))
    assert await store.load("a", TENANT) is not None
    assert await store.load_chain("a", TENANT) is None


async def test_a_record_is_freed_when_its_last_descendant_goes():
    store = make_store()
    await save_chain(store, "a", "b", "c")
    await continue_chain(store, "b", "c2")
    for name in ("a", "b", "c"):
        await store.delete(name, TENANT)
    assert store.count == 3  # a and b, which c2 needs, and c2
    await store.delete("c2", TENANT)
    assert (store.count, store.bytes) == (0, 0)


async def test_bytes_are_those_of_the_records():
    store = make_store()
    await store.save(make_state("a", None, response=b"long" * 100))
    await store.save(make_state("a", None))
    assert (store.count, store.bytes) == (1, len(encode_state(make_state("a", None))))


async def test_replacing_a_record_in_a_full_store_takes_no_other():
    store = make_store(max_responses=2)
    await store.save(make_state("a", None))
    await store.save(make_state("b", None))
    await store.save(make_state("b", None, response=b"newer"))
    await require_chain(store, "a", ["a"])


async def test_a_replaced_records_chain_is_the_last_to_make_room_for_it():
    store = make_store(max_bytes=1000)
    await save_chain(store, "a", "b")
    await store.save(make_state("c", None))
    await store.save(make_state("a", None, response=b"x" * (1010 - store.bytes)))
    await require_unknown(store, "c", TENANT)
    await require_chain(store, "b", ["a", "b"])


async def test_saving_forgets_what_has_expired():
    now = 0.0
    store = make_store(max_idle_seconds=10, now=lambda: now)
    await store.save(make_state("a", None))
    now = 10.0
    await store.save(make_state("b", "a"))
    assert await store.load_chain("b", TENANT) is None
    assert store.count == 1


async def test_a_cancelled_save_has_changed_nothing():
    store = make_store()
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.save(make_state("a", None))
    assert store.count == 0


async def test_a_record_larger_than_the_bound_is_not_kept_and_takes_nothing_with_it():
    store = make_store(max_bytes=1000)
    await save_chain(store, "a", "b")
    await store.save(make_state("huge", "b", response=b"x" * 1000))
    await require_unknown(store, "huge", TENANT)
    await require_chain(store, "b", ["a", "b"])
    await store.save(make_state("b", "a", response=b"x" * 1000))
    await require_unknown(store, "b", TENANT)
    await require_chain(store, "a", ["a"])


async def test_a_record_that_grows_by_replacement_past_its_own_chain_is_kept_alone():
    store = make_store(max_bytes=1000)
    await save_chain(store, "a", "b")
    await store.save(make_state("b", "a", response=b"x" * 700))
    assert await store.load("b", TENANT) is not None
    await require_unknown(store, "a", TENANT)
    assert store.count == 1


async def test_a_fork_in_use_keeps_only_the_past_it_needs_and_hidden():
    now = 0.0
    store = make_store(max_idle_seconds=10, now=lambda: now)
    await save_chain(store, "a", "b", "c")
    await continue_chain(store, "b", "c2")
    now = 6.0
    await store.load("c2", TENANT)
    now = 12.0
    for name in ("a", "b", "c"):
        await require_unknown(store, name, TENANT)
    await require_chain(store, "c2", ["a", "b", "c2"])
    assert store.count == 3
    now = 22.0
    await require_unknown(store, "c2", TENANT)
    assert store.count == 0


async def test_hydrating_a_fork_uses_what_it_hangs_on():
    now = 0.0
    store = make_store(max_idle_seconds=10, now=lambda: now)
    await save_chain(store, "a", "b", "c")
    await continue_chain(store, "b", "c2")
    now = 6.0
    await store.load_chain("c2", TENANT)
    now = 12.0
    await require_chain(store, "c", ["a", "b", "c"])


async def test_a_chain_expires_exactly_when_it_was_idle_for_its_time():
    now = 0.0
    store = make_store(max_idle_seconds=10, now=lambda: now)
    await store.save(make_state("a", None))
    now = 9.99
    assert await store.load("a", TENANT) is not None
    now += 10
    assert await store.load("a", TENANT) is None


async def test_forks_of_forks_are_freed_without_recursion():
    store = make_store()
    await save_chain(store, "0")
    for depth in range(1, 1500):
        await continue_chain(store, str(depth - 1), f"{depth}-")
        await continue_chain(store, str(depth - 1), str(depth))
    await store.aclose()
    assert (store.count, store.bytes) == (0, 0)


async def test_a_long_chain_lets_other_tasks_run_while_it_is_loaded():
    store = make_store()
    await save_chain(store, *(str(index) for index in range(300)))
    passes = 0

    async def count_passes():
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_passes)
        assert len(await store.load_chain("299", TENANT)) == 300
        nursery.cancel_scope.cancel()
    assert passes >= 3  # one of the five checkpoints may go by while the counting task starts, one while it ends


async def test_closing_frees_everything_even_while_cancelled():
    store = make_store()
    await save_chain(store, "a", "b")
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.aclose()
    assert (store.count, store.bytes) == (0, 0)


class Model:
    """A store as a table of paths: what an id's chain is, and which records somebody still needs."""

    def __init__(self) -> None:
        self.paths: dict[str, tuple[tuple[str, int], ...]] = {}
        self.parents: dict[tuple[str, int], str | None] = {}
        self.orphans: set[tuple[str, int]] = set()
        self.made = 0

    def save(self, name: str, parent: str | None) -> None:
        old = self.paths.get(name)
        if old is not None and self.parents[old[-1]] == parent:
            return
        self.paths.pop(name, None)
        self.made += 1
        record = (name, self.made)
        self.parents[record] = parent
        if parent is not None and parent not in self.paths:
            self.orphans.add(record)
        self.paths[name] = (*self.paths.get(parent, ()), record)

    def chain(self, name: str) -> list[str] | None:
        path = self.paths.get(name)
        return None if path is None or path[0] in self.orphans else [entry[0] for entry in path]

    @property
    def needed(self) -> int:
        return len({record for path in self.paths.values() for record in path})


NAMES = list("abcdef")
saves = st.tuples(st.just("save"), st.sampled_from(NAMES), st.none() | st.sampled_from(NAMES))
deletes = st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none())


@pytest.mark.slow
@given(st.lists(saves | saves | deletes, max_size=40))
async def test_any_history_leaves_the_right_chains_and_nothing_else(history):
    store, model = make_store(), Model()
    for action, name, parent in history:
        if action == "save":
            await store.save(make_state(name, parent))
            model.save(name, parent)
        else:
            assert await store.delete(name, TENANT) == (model.paths.pop(name, None) is not None)
        assert store.count == model.needed
    for name in NAMES:
        chain = await store.load_chain(name, TENANT)
        assert (chain and ids_of(chain)) == model.chain(name)
        assert (await store.load(name, TENANT) is not None) == (name in model.paths)
    for name in NAMES:
        await store.delete(name, TENANT)
    assert (store.count, store.bytes, len(store._branches)) == (0, 0, 0)


@pytest.mark.slow
@given(st.lists(saves | deletes, max_size=40), st.integers(1, 4))
async def test_any_history_stays_within_the_bounds_and_keeps_the_newest(history, bound):
    size = len(encode_state(make_state("a", "b")))
    store = make_store(max_responses=bound, max_bytes=3 * size)
    for action, name, parent in history:
        if action == "save":
            await store.save(make_state(name, parent))
            assert await store.load(name, TENANT) is not None
        else:
            await store.delete(name, TENANT)
        assert store.count <= bound
        assert store.bytes <= 3 * size


async def test_the_index_of_items_counts_and_goes_with_its_records():
    store = make_store(max_bytes=4 * (len(encode_state(make_state("r49", None, items=("m49",)))) + ITEM_BYTES))
    for number in range(50):
        await store.save(make_state(f"r{number}", None, items=(f"m{number}",)))
        assert store.bytes <= store._max_bytes
    assert store.count == 4 == len(store._items)
    assert await store.load_item("m49", TENANT) == item_of("r49", "m49")
    assert await store.load_item("m0", TENANT) is None
    await store.save(make_state("r49", None))
    assert len(store._items) == 3
    await store.aclose()
    assert (store.bytes, store._items) == (0, {})


async def test_items_of_an_idle_branch_expire_and_being_loaded_is_a_use():
    clock = [0.0]
    store = make_store(max_idle_seconds=10, now=lambda: clock[0])
    for name in ("a", "b"):
        await store.save(make_state(name, None, items=(f"msg_{name}",)))
    clock[0] = 9.0
    await store.load_item("msg_a", TENANT)
    clock[0] = 11.0
    assert await store.load_item("msg_b", TENANT) is None
    assert await store.load_item("msg_a", TENANT) is not None
