"""The store checks themselves: each way to be wrong is caught."""

from __future__ import annotations

import pytest
import trio

from respserver.state import ResponseState, encode_state
from respserver.store.memory import MemoryStore
from respserver.testing import check_store, check_store_bounds, check_store_expiry
from respserver.testing.chains import TENANT, make_state
from respserver.testing.checks import a_deep_chain_loads_in_order

AMPLE = 1 << 30


def make_store(kind: type[MemoryStore] = MemoryStore) -> MemoryStore:
    return kind(max_responses=AMPLE, max_bytes=AMPLE, max_idle_seconds=AMPLE, now=lambda: 0.0)


class ForgetsTenants(MemoryStore):
    async def load(self, response_id, tenant):
        return await super().load(response_id, TENANT)


class LoadsNewestFirst(MemoryStore):
    async def load_chain(self, response_id, tenant):
        chain = await super().load_chain(response_id, tenant)
        return chain and chain[::-1]


class LoadsWholeBranches(MemoryStore):
    """Gives out what came after the record too."""

    async def load_chain(self, response_id, tenant):
        chain = await super().load_chain(response_id, tenant)
        later = self._visible[tenant, response_id].branch.records if chain else []
        return chain and chain + [await self.load(record.key[1], tenant) for record in later[len(chain) :]]


class DeletesDescendants(MemoryStore):
    async def delete(self, response_id, tenant):
        for key, record in list(self._visible.items()):
            if key[0] == tenant and record.parent_id == response_id:
                await self.delete(key[1], tenant)
        return await super().delete(response_id, tenant)


class DropsADeletedPast(MemoryStore):
    async def load_chain(self, response_id, tenant):
        chain = await super().load_chain(response_id, tenant)
        return chain and [state for state in chain if (tenant, state.id) in self._visible]


class GivesOutOrphans(MemoryStore):
    async def load_chain(self, response_id, tenant):
        state = await self.load(response_id, tenant)
        return await super().load_chain(response_id, tenant) or (state and [state])


class FindsHiddenItems(MemoryStore):
    """Never takes an item out of its index."""

    def _unindex(self, record):
        pass


class FindsAnybodysItems(MemoryStore):
    async def load_item(self, item_id, tenant):
        return await super().load_item(item_id, TENANT)


class LosesSharedItems(MemoryStore):
    """Forgets an item with the first of the responses that hold it."""

    def _unindex(self, record):
        for key in record.item_keys:
            self._items.pop(key, None)


class LosesFields(MemoryStore):
    async def save(self, state):
        await super().save(ResponseState(**{**{f: getattr(state, f) for f in state.__struct_fields__}, "verdict": ""}))


class KeepsTheFirst(MemoryStore):
    async def save(self, state):
        if await self.load(state.id, state.tenant) is None:
            await super().save(state)


class TearsWhenCancelled(MemoryStore):
    """Changes something before its last checkpoint."""

    async def save(self, state):
        parent = state.previous_response_id
        placeholder = make_state(state.id, None, tenant=state.tenant)
        if parent is not None and (state.tenant, state.id) not in self._visible:
            self._add((state.tenant, state.id), "nowhere", encode_state(placeholder))
        await trio.lowlevel.checkpoint()
        await super().save(state)


class ClosesOnce(MemoryStore):
    closed = False

    async def aclose(self):
        if self.closed:
            raise RuntimeError("closed")
        self.closed = True


class Recurses(MemoryStore):
    async def load_chain(self, response_id, tenant):
        state = await self.load(response_id, tenant)
        if state is None or state.previous_response_id is None:
            return state and [state]
        before = await self.load_chain(state.previous_response_id, tenant)
        return before and [*before, state]


@pytest.mark.parametrize(
    "broken",
    [
        ForgetsTenants,
        LoadsNewestFirst,
        LoadsWholeBranches,
        DeletesDescendants,
        DropsADeletedPast,
        GivesOutOrphans,
        FindsHiddenItems,
        FindsAnybodysItems,
        LosesSharedItems,
        LosesFields,
        KeepsTheFirst,
        TearsWhenCancelled,
    ],
)
async def test_the_checks_catch_a_broken_store(broken):
    async def open_broken():
        return make_store(broken)

    with pytest.raises(AssertionError):
        await check_store(open_broken)


@pytest.mark.parametrize(("broken", "error"), [(ClosesOnce, RuntimeError), (Recurses, RecursionError)])
async def test_the_checks_let_a_stores_own_error_through(broken, error):
    async def open_broken():
        return make_store(broken)

    check = a_deep_chain_loads_in_order if broken is Recurses else check_store
    with pytest.raises(error):
        await check(open_broken)


async def test_the_checks_catch_a_store_that_never_forgets():
    async def open_endless(**bounds):
        return make_store()

    with pytest.raises(AssertionError, match="should be unknown"):
        await check_store_expiry(open_endless)
    with pytest.raises(AssertionError, match="should be unknown"):
        await check_store_bounds(open_endless)
