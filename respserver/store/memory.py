"""A store in this process's memory, bounded in records, bytes and idle time (design.md section 5).

Records are kept as bytes and laid in branches: a continuation of a branch's tip joins it, any other continuation
starts a branch that hangs on its parent. A branch is also what eviction and expiry take, whole, the longest unused
first. Taking a branch hides its ids; a hidden record is freed as soon as nothing that hangs on it is left, and that is
always the tip of its branch, so that freeing only ever pops.

Nothing here waits for anything: a method passes one checkpoint, changes all it has to change, and returns.
"""

from __future__ import annotations

import builtins
import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import trio

from respserver.state import ResponseState, StoredItem, decode_state, encode_state, find_item

_Key = tuple[str, str]
"""Tenant and response id: another tenant's id is not even looked at."""

DECODED_AT_ONCE = 64
"""Records of a chain that are decoded between two checkpoints: well under 1 ms, so that a long chain stalls nobody."""
ITEM_BYTES = 300
"""About what an item's place in the index costs, its id included."""


@dataclass(slots=True, eq=False)
class _Branch:
    name: str
    parent: _Record | None
    """The record of another branch that this one hangs on."""
    fork_of: str | None
    """The parent's id, also if that was never stored."""
    used_at: float
    records: list[_Record] = field(default_factory=list)

    @property
    def is_orphan(self) -> bool:
        return self.parent is None and self.fork_of is not None


@dataclass(slots=True, eq=False)
class _Record:
    key: _Key
    parent_id: str | None
    data: bytes
    item_ids: tuple[str, ...]
    branch: _Branch
    position: int
    forks: int = 0
    """How many branches hang on this record."""
    hidden: bool = False

    @property
    def size(self) -> int:
        return _size(self.data, self.item_ids)

    @property
    def item_keys(self) -> list[_Key]:
        return [(self.key[0], item_id) for item_id in self.item_ids]


class MemoryStore:
    """Fulfils ``store.base.Store`` for one process; everything is gone when the process ends.

    ``max_responses`` and ``max_bytes`` bound what is held, hidden records and the index of items included;
    ``max_idle_seconds`` is how long a branch may go unused, by the clock ``now`` (seconds, any origin). Loading,
    continuing and replacing are uses; a whole chain is used with its tip by ``load_chain``, but not by the other
    methods, which stay independent of its length.

    The newest record is always kept: if it doesn't fit beside its own past, the past goes and the record can still be
    loaded, though not continued. Only a record that is larger than ``max_bytes`` by itself is dropped silently.
    """

    def __init__(
        self, *, max_responses: int, max_bytes: int, max_idle_seconds: float, now: Callable[[], float]
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._max_idle_seconds = max_idle_seconds
        self._now = now
        self._names = itertools.count(1)
        self._visible: dict[_Key, _Record] = {}
        self._items: dict[_Key, dict[_Record, None]] = {}
        """Which visible records have an item of an id, the newest last."""
        self._branches: OrderedDict[_Branch, None] = OrderedDict()
        """Branches that eviction can still take, the longest unused first."""
        self._count = 0
        self._bytes = 0

    @property
    def count(self) -> int:
        """Records held, hidden ones included."""
        return self._count

    @property
    def bytes(self) -> int:
        """Bytes of the records held, hidden ones and the index of items included."""
        return self._bytes

    async def load(self, response_id: str, tenant: str) -> ResponseState | None:
        """The state, or None if it is unknown, deleted, expired, evicted or another tenant's."""
        await trio.lowlevel.checkpoint()
        record = self._find(response_id, tenant)
        if record is None:
            return None
        self._use(record.branch)
        return _decode(record)

    async def load_chain(self, response_id: str, tenant: str) -> list[ResponseState] | None:
        """The state and all its ancestors, oldest first; None as for ``load``, or if an ancestor was never stored."""
        await trio.lowlevel.checkpoint()
        tips = self._use_chain(response_id, tenant)
        if not tips:
            return None
        segments = [tip.branch.records[: tip.position + 1] for tip in reversed(tips)]
        chain: list[ResponseState] = []
        for record in itertools.chain.from_iterable(segments):
            chain.append(_decode(record))
            if len(chain) % DECODED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return chain

    async def touch(self, response_id: str, tenant: str) -> bool:
        """Whether ``load_chain`` would give the chain; counts as a use of all of it, and reads none of it."""
        await trio.lowlevel.checkpoint()
        return bool(self._use_chain(response_id, tenant))

    async def load_item(self, item_id: str, tenant: str) -> StoredItem | None:
        """An item of a response that ``load`` would give, by the item's own id, or None."""
        await trio.lowlevel.checkpoint()
        self._expire()
        holders = self._items.get((tenant, item_id))
        if holders is None:
            return None
        record = next(reversed(holders))
        self._use(record.branch)
        return find_item(decode_state(record.data), item_id)

    async def save(self, state: ResponseState) -> None:
        """Keep a state, or replace it; a parent that is unknown by now makes it an orphan, which can only be loaded.

        Raises ``trio.Cancelled`` only before anything has changed.
        """
        await trio.lowlevel.checkpoint()
        self._expire()
        key = (state.tenant, state.id)
        data, item_ids = encode_state(state), tuple(state.item_ids)
        size = _size(data, item_ids)
        old = self._visible.get(key)
        if old is not None and (old.parent_id != state.previous_response_id or size > self._max_bytes):
            self._hide(old)
        if size > self._max_bytes:
            return
        self._make_room(key, state.previous_response_id, size)
        # Making room may have taken the record that was to be replaced, or the parent: look again.
        if (old := self._visible.get(key)) is not None:
            self._replace(old, data, item_ids)
        else:
            self._add(key, state.previous_response_id, data, item_ids)

    async def delete(self, response_id: str, tenant: str) -> bool:
        """Hide the id at once; False if there was nothing to hide. Living descendants keep their past."""
        await trio.lowlevel.checkpoint()
        record = self._find(response_id, tenant)
        if record is None:
            return False
        self._hide(record)
        return True

    async def aclose(self) -> None:
        """Forget everything. Safe to call twice."""
        while self._branches:
            self._evict(next(iter(self._branches)))
        await trio.lowlevel.checkpoint()

    def _find(self, response_id: str, tenant: str) -> _Record | None:
        self._expire()
        return self._visible.get((tenant, response_id))

    def _use_chain(self, response_id: str, tenant: str) -> list[_Record]:
        """The last record of each branch that a chain runs through, newest first; none if it can't be continued."""
        tip = self._find(response_id, tenant)
        tips: list[_Record] = []
        while tip is not None:
            self._use(tip.branch)
            tips.append(tip)
            tip = tip.branch.parent
        return [] if tips and tips[-1].branch.is_orphan else tips

    def _use(self, branch: _Branch) -> None:
        """Note a use. A branch that was taken already, and is only held for its forks, stays taken."""
        if branch in self._branches:
            branch.used_at = self._now()
            self._branches.move_to_end(branch)

    def _add(self, key: _Key, parent_id: str | None, data: builtins.bytes, item_ids: tuple[str, ...] = ()) -> None:
        parent = None if parent_id is None else self._visible.get((key[0], parent_id))
        if parent is not None and parent.branch.records[-1] is parent:
            branch = parent.branch
        else:
            branch = self._start_branch(parent, parent_id)
        record = _Record(key, parent_id, data, item_ids, branch, len(branch.records))
        branch.records.append(record)
        self._visible[key] = record
        self._index(record)
        self._count += 1
        self._bytes += record.size

    def _replace(self, record: _Record, data: builtins.bytes, item_ids: tuple[str, ...]) -> None:
        self._unindex(record)
        self._bytes -= record.size
        record.data, record.item_ids = data, item_ids
        self._bytes += record.size
        self._index(record)

    def _index(self, record: _Record) -> None:
        for key in record.item_keys:
            self._items.setdefault(key, {})[record] = None

    def _unindex(self, record: _Record) -> None:
        for key in record.item_keys:
            holders = self._items.get(key, {})
            holders.pop(record, None)
            if not holders:
                self._items.pop(key, None)

    def _start_branch(self, parent: _Record | None, parent_id: str | None) -> _Branch:
        branch = _Branch(str(next(self._names)), parent, parent_id, self._now())
        if parent is not None:
            parent.forks += 1
        self._branches[branch] = None
        return branch

    def _make_room(self, key: _Key, parent_id: str | None, size: int) -> None:
        """Evict until a record of ``size`` bytes fits; what it replaces or continues goes last."""
        for related in ((key[0], parent_id or ""), key):
            if (record := self._visible.get(related)) is not None:
                self._use(record.branch)
        while self._branches:
            old = self._visible.get(key)
            count = self._count + (old is None)
            held = self._bytes + size - (0 if old is None else old.size)
            if count <= self._max_responses and held <= self._max_bytes:
                return
            self._evict(next(iter(self._branches)))

    def _expire(self) -> None:
        limit = self._now() - self._max_idle_seconds
        while self._branches and (oldest := next(iter(self._branches))).used_at <= limit:
            self._evict(oldest)

    def _evict(self, branch: _Branch) -> None:
        del self._branches[branch]
        for record in branch.records:
            self._conceal(record)
        self._free(branch)

    def _hide(self, record: _Record) -> None:
        self._conceal(record)
        self._free(record.branch)

    def _conceal(self, record: _Record) -> None:
        if not record.hidden:
            record.hidden = True
            del self._visible[record.key]
            self._unindex(record)

    def _free(self, branch: _Branch) -> None:
        """Free hidden records from the tip down, then down the branch that an emptied one hung on.

        A loop, because forks of forks can be nested as deep as a chain is long.
        """
        while True:
            records = branch.records
            while records and records[-1].hidden and not records[-1].forks:
                self._count -= 1
                self._bytes -= records.pop().size
            if records:
                return
            self._branches.pop(branch, None)
            if branch.parent is None:
                return
            branch.parent.forks -= 1
            branch = branch.parent.branch


def _size(data: bytes, item_ids: tuple[str, ...]) -> int:
    return len(data) + ITEM_BYTES * len(item_ids)


def _decode(record: _Record) -> ResponseState:
    """The state with its place filled in. Only the first record of a branch names what that hangs on."""
    branch = record.branch
    return msgspec.structs.replace(
        decode_state(record.data),
        branch=branch.name,
        position=record.position,
        fork_of=branch.fork_of if record.position == 0 else None,
    )
