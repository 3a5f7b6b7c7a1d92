"""The head of a context (instructions and tools) as token ids, kept for the next turn that has the same one.

Only the body of a context grows for ever; the head is replaced when instructions or tools change (design.md section 2,
"Head and body"). HTTP turns find their head here, WebSocket turns mostly in the engine's open run.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict

from respserver.schema.tools import ToolSet

MAX_TOKENS = 4_000_000
"""Bound of the cache: 16 MB of ids, some hundred heads of a coding agent's size."""


def head_key(tenant: str, instructions: str | None, tools: ToolSet, fingerprint: str) -> bytes:
    """What two heads must share to be the same one; keys of different tenants never meet."""
    digest = hashlib.sha256(f"{len(tenant)}:{tenant}{fingerprint}\0{instructions or ''}".encode("utf-8", "replace"))
    digest.update(tools.digest)
    return digest.digest()


class HeadCache:
    """Heads by key, the least lately used one out first."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._heads: OrderedDict[bytes, array[int]] = OrderedDict()
        self._max_tokens = max_tokens
        self._tokens = 0

    def get(self, key: bytes) -> array[int] | None:
        """The ids, if they are here."""
        ids = self._heads.get(key)
        if ids is not None:
            self._heads.move_to_end(key)
        return ids

    def put(self, key: bytes, ids: array[int]) -> None:
        """Keep ids under a key that is not here yet."""
        self._heads[key] = ids
        self._tokens += len(ids)
        while self._tokens > self._max_tokens and len(self._heads) > 1:
            _, dropped = self._heads.popitem(last=False)
            self._tokens -= len(dropped)
