"""What every store must do, as checks that anyone can run on theirs.

A check takes a function that opens an empty store, and raises ``AssertionError`` with a sentence that tells what was
not kept. It knows only the interface (``store/base.py``): how a store lays out its records is its own business.
Bounds and expiry have their own checks (``bounds.py``), for stores that have them. There is no
pytest here, so that any test runner will do, as long as it runs under Trio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import trio

from respserver.store.base import Store
from respserver.testing.chains import (
    TENANT,
    continue_chain,
    full_state,
    ids_of,
    item_of,
    make_state,
    plain,
    plain_chain,
    require,
    require_chain,
    require_unknown,
    save_chain,
)

OpenStore = Callable[[], Awaitable[Store]]
"""Opens an empty store, a new one at each call."""

DEEP = 1000
"""Turns of the long chain: more than any recursion or query size that should not be there would stand."""


async def check_store(open_store: OpenStore) -> None:
    """Run every check that holds for all stores. Raises ``AssertionError`` at the first that fails."""
    for check in STORE_CHECKS:
        await check(open_store)


async def every_field_survives(open_store: OpenStore) -> None:
    """What is loaded is what was saved, but for the store's own three fields."""
    async with aclosing(await open_store()) as store:
        full = full_state()
        await store.save(full)
        require(plain(await store.load(full.id, TENANT)) == full, "a loaded state differs from the saved one")
        require(plain_chain(await store.load_chain(full.id, TENANT)) == [full], "a loaded chain differs from the saved")


async def saving_again_replaces(open_store: OpenStore) -> None:
    """The last state saved under an id counts, wherever in a chain it stands."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b", "c")
        newer = make_state("b", "a", response=b'{"newer":true}')
        await store.save(newer)
        require(plain(await store.load("b", TENANT)) == newer, "saving an id again did not replace it")
        chain = await store.load_chain("c", TENANT)
        require(ids_of(chain) == ["a", "b", "c"], f"a replaced record lost its place: {ids_of(chain)}")
        require(plain_chain(chain)[1] == newer, "a chain shows a replaced record")


async def unknown_ids_answer_none(open_store: OpenStore) -> None:
    """An unknown id is None to load and nothing to delete."""
    async with aclosing(await open_store()) as store:
        await require_unknown(store, "nothing", TENANT)
        require(await store.delete("nothing", TENANT) is False, "deleting an unknown id claims success")


async def tenants_do_not_meet(open_store: OpenStore) -> None:
    """Another tenant's id answers like an unknown one, can't be deleted, continued or overwritten."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b")
        await require_unknown(store, "a", "stranger")
        require(await store.delete("a", "stranger") is False, "a stranger could delete an id")
        await store.save(make_state("theirs", "a", tenant="stranger"))
        require(await store.load_chain("theirs", "stranger") is None, "a stranger's record continues a tenant's chain")
        await store.save(make_state("b", None, tenant="stranger"))
        await require_chain(store, "b", ["a", "b"])


async def chains_load_oldest_first(open_store: OpenStore) -> None:
    """A chain is the record and all before it, and nothing after it."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b", "c", "d")
        await require_chain(store, "d", ["a", "b", "c", "d"])
        await require_chain(store, "b", ["a", "b"])
        await require_chain(store, "a", ["a"])


async def forks_share_their_past(open_store: OpenStore) -> None:
    """Every continuation of a record has the same past and none of its siblings."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b", "c")
        await continue_chain(store, "b", "c2", "d2", "e2")
        await continue_chain(store, "d2", "e3")
        await continue_chain(store, "a", "b4")
        await continue_chain(store, "c", "d")
        await require_chain(store, "d", ["a", "b", "c", "d"])
        await require_chain(store, "e2", ["a", "b", "c2", "d2", "e2"])
        await require_chain(store, "e3", ["a", "b", "c2", "d2", "e3"])
        await require_chain(store, "b4", ["a", "b4"])


async def an_orphan_is_loaded_but_not_continued(open_store: OpenStore) -> None:
    """A record whose parent was never stored, and what follows it, can be read; its chain can't."""
    async with aclosing(await open_store()) as store:
        await store.save(make_state("orphan", "unstored"))
        await store.save(make_state("child", "orphan"))
        for name in ("orphan", "child"):
            require(await store.load(name, TENANT) is not None, "a record with an unstored parent can't be loaded")
            require(await store.load_chain(name, TENANT) is None, "a chain with an unstored ancestor was given out")
            require(await store.touch(name, TENANT) is False, "touch finds a chain with an unstored ancestor")


async def a_deleted_id_is_unknown_at_once(open_store: OpenStore) -> None:
    """Deleting hides the id, once, and lets it be saved anew."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b")
        require(await store.delete("b", TENANT) is True, "deleting a stored id answers False")
        await require_unknown(store, "b", TENANT)
        require(await store.delete("b", TENANT) is False, "an id was deleted twice")
        await require_chain(store, "a", ["a"])
        await store.save(make_state("b", "a"))
        await require_chain(store, "b", ["a", "b"])


async def descendants_outlive_a_deleted_past(open_store: OpenStore) -> None:
    """Living descendants keep their whole past and can be continued; the hidden ids stay hidden."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b", "c")
        await continue_chain(store, "b", "c2")
        for name in ("b", "a", "c"):
            await store.delete(name, TENANT)
        await continue_chain(store, "c2", "d2")
        await require_chain(store, "d2", ["a", "b", "c2", "d2"])
        for name in ("a", "b", "c"):
            await require_unknown(store, name, TENANT)


async def nothing_continues_a_deleted_id(open_store: OpenStore) -> None:
    """A record that is saved after its parent was deleted is an orphan, whether the parent's record is gone or not."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b", "c")
        await store.delete("b", TENANT)
        await store.save(make_state("late", "b"))
        await store.delete("c", TENANT)
        await store.save(make_state("later", "c"))
        for name in ("late", "later"):
            require(await store.load(name, TENANT) is not None, "a record is lost because its parent was deleted")
            require(await store.load_chain(name, TENANT) is None, "a deleted record was continued")
            require(await store.touch(name, TENANT) is False, "touch finds a chain that goes through a deleted record")
        await continue_chain(store, "a", "b2")
        await require_chain(store, "b2", ["a", "b2"])


async def items_are_found_by_their_own_ids(open_store: OpenStore) -> None:
    """An item is loaded by its id, for its tenant alone, as long as a response that holds it can be loaded."""
    async with aclosing(await open_store()) as store:
        await store.save(make_state("a", None, items=("msg_1", "rs_1")))
        await store.save(make_state("b", "a", items=("msg_2",)))
        for item_id, holder in (("msg_1", "a"), ("rs_1", "a"), ("msg_2", "b")):
            found = await store.load_item(item_id, TENANT)
            require(found == item_of(holder, item_id), f"load_item gives {found} for {item_id}")
            require(await store.load_item(item_id, "stranger") is None, "load_item gives out another tenant's item")
        for unknown in ("msg_3", "a", ""):
            require(await store.load_item(unknown, TENANT) is None, f"load_item knows '{unknown}'")
        await store.save(make_state("b", "a", items=("msg_4",)))
        require(await store.load_item("msg_2", TENANT) is None, "load_item knows an item of a replaced record")
        require(await store.load_item("msg_4", TENANT) == item_of("b", "msg_4"), "load_item misses a replaced record's")


async def items_are_hidden_with_their_responses(open_store: OpenStore) -> None:
    """An item goes with the last response that holds it, also if a living chain runs through that."""
    async with aclosing(await open_store()) as store:
        await store.save(make_state("a", None, items=("msg_1", "msg_2")))
        await store.save(make_state("b", "a", items=("msg_3",)))
        await store.save(make_state("again", None, items=("msg_1",)))
        await store.delete("a", TENANT)
        require(await store.load_item("msg_2", TENANT) is None, "load_item knows an item of a deleted response")
        require(await store.load_item("msg_1", TENANT) == item_of("again", "msg_1"), "an item held twice is lost")
        require(await store.load_item("msg_3", TENANT) == item_of("b", "msg_3"), "a living response's item is lost")
        await store.delete("again", TENANT)
        require(await store.load_item("msg_1", TENANT) is None, "load_item knows an item whose responses are deleted")


async def a_deep_chain_loads_in_order(open_store: OpenStore) -> None:
    """A thousand turns are no matter, and none to delete either."""
    async with aclosing(await open_store()) as store:
        names = [f"r{index}" for index in range(DEEP)]
        await save_chain(store, *names)
        await require_chain(store, names[-1], names)
        for name in names[:-1]:
            await store.delete(name, TENANT)
        await require_chain(store, names[-1], names)
        await store.delete(names[-1], TENANT)
        await require_unknown(store, names[-1], TENANT)


async def tasks_do_not_disturb_each_other(open_store: OpenStore) -> None:
    """Chains that grow side by side from one parent stay apart."""
    async with aclosing(await open_store()) as store:
        await store.save(make_state("root", None))

        async def grow(lane: int) -> None:
            names = [f"lane{lane}.{index}" for index in range(10)]
            parent = "root"
            for length, name in enumerate(names, 1):
                await continue_chain(store, parent, name)
                await require_chain(store, name, ["root", *names[:length]])
                parent = name

        async with trio.open_nursery() as nursery:
            for lane in range(10):
                nursery.start_soon(grow, lane)


async def cancellation_leaves_it_usable(open_store: OpenStore) -> None:
    """A cancelled save has happened or not, and whatever is cancelled, the store goes on."""
    async with aclosing(await open_store()) as store:
        await save_chain(store, "a", "b")
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.save(make_state("cancelled", "b"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.load_chain("b", TENANT)
        async with trio.open_nursery() as nursery:
            for index in range(10):
                nursery.start_soon(store.save, make_state(f"torn{index}", "b"))
                nursery.start_soon(store.load_chain, "b", TENANT)
            nursery.start_soon(_cancel_soon, nursery.cancel_scope)
        for name in ("cancelled", *(f"torn{index}" for index in range(10))):
            loaded = await store.load(name, TENANT)
            chain = await store.load_chain(name, TENANT)
            whole = ["a", "b", name] if loaded else None
            require((chain and ids_of(chain)) == whole, f"a cancelled save left {name} half done")
        await continue_chain(store, "b", "c")
        await require_chain(store, "c", ["a", "b", "c"])


async def closing_twice_is_safe(open_store: OpenStore) -> None:
    """Closing may be repeated."""
    store = await open_store()
    await store.save(make_state("a", None))
    await store.aclose()
    await store.aclose()


async def _cancel_soon(scope: trio.CancelScope) -> None:
    await trio.lowlevel.checkpoint()
    scope.cancel()


STORE_CHECKS: tuple[Callable[[OpenStore], Awaitable[None]], ...] = (
    every_field_survives,
    saving_again_replaces,
    unknown_ids_answer_none,
    tenants_do_not_meet,
    chains_load_oldest_first,
    forks_share_their_past,
    an_orphan_is_loaded_but_not_continued,
    a_deleted_id_is_unknown_at_once,
    descendants_outlive_a_deleted_past,
    nothing_continues_a_deleted_id,
    items_are_found_by_their_own_ids,
    items_are_hidden_with_their_responses,
    a_deep_chain_loads_in_order,
    tasks_do_not_disturb_each_other,
    cancellation_leaves_it_usable,
    closing_twice_is_safe,
)
"""What ``check_store`` runs, one by one, for parametrised tests."""
