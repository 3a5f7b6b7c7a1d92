"""Token ids of items and heads, kept for whoever sends the same again (design.md section 5, "Rendered-token cache").

Clients without a chain resend everything; what was rendered or sampled before is then found by content. The key is made
of the pieces that would be tokenised, so that ids, unknown fields and the shape an item came in do not matter, and that
what the model sampled is found again as it was sampled. Keys of different tenants, tokenizers and templates never meet.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from itertools import pairwise

import msgspec

from respserver.metrics import Metrics
from respserver.schema.tools import ToolSet
from respserver.tokens.render import Pieces

ENTRY_BYTES = 200
"""About what an entry costs beside its ids."""
_encode = msgspec.msgpack.Encoder().encode


class TokenCache:
    """Ids by key within a bound in bytes, the least lately used out first. A bound of 0 keeps nothing."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._entries: OrderedDict[bytes, array[int]] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether anything is ever kept."""
        return self._max_bytes > 0

    def get(self, key: bytes) -> array[int] | None:
        """The ids, if they are here. They are shared: nobody may change them."""
        ids = self._entries.get(key)
        if ids is None:
            self._metrics.token_cache_misses += 1
            return None
        self._metrics.token_cache_hits += 1
        self._entries.move_to_end(key)
        return ids

    def put(self, key: bytes, ids: array[int], *, replaces: bool = False) -> None:
        """Keep ids under a key; what no bound has room for drives nobody out. What is there already stays, unless these
        ids are what a model said last: a character that was cut in two reads the same, wherever it was cut."""
        cost = _cost(ids)
        if cost > self._max_bytes or (key in self._entries and not replaces):
            return
        if key in self._entries:
            self.bytes -= _cost(self._entries.pop(key))
        self._entries[key] = ids
        self.bytes += cost
        while self.bytes > self._max_bytes:
            _, dropped = self._entries.popitem(last=False)
            self.bytes -= _cost(dropped)


def head_key(scope: str, instructions: str | None, tools: ToolSet) -> bytes:
    """What two heads must share to be the same one. ``scope`` says for whom and for which template."""
    return _digest("head", scope, instructions, tools.digest)


def item_key(scope: str, pieces: Pieces) -> bytes:
    """What two items must share to be the same tokens."""
    return _digest("item", scope, pieces)


def scope_of(tenant: str, fingerprint: str) -> str:
    """For whom and for which tokenizer and template ids are good; lengths keep two names from reading as others."""
    return f"{len(tenant)}:{tenant}{fingerprint}"


def whole_items(ids: array[int], start: int) -> list[array[int]]:
    """Cut sampled ids into items: each begins with the id ``start`` (for what stands before the first, nothing)."""
    bounds: list[int] = []
    for _ in range(ids.count(start)):
        bounds.append(ids.index(start, bounds[-1] + 1 if bounds else 0))
    bounds.append(len(ids))
    return [ids[begin:end] for begin, end in pairwise(bounds)]


def _digest(*parts: object) -> bytes:
    """MessagePack tells where each part ends, so that no parts read as others."""
    return hashlib.sha256(_encode(parts)).digest()


def _cost(ids: array[int]) -> int:
    return ENTRY_BYTES + ids.itemsize * len(ids)
