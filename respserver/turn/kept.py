"""Contexts of stored responses that no connection holds any more, kept whole for whoever goes on from them.

A turn over HTTP, or on a new socket, would else load its whole chain and give an engine all of it again. The store
stays the judge of what may be continued: what is kept here only saves work. A context has one owner (design.md
section 6): it is taken out by the first that goes on from it, and a second continuation hydrates from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from respserver.protocol.chain import Context, Latest

CONTEXT_BYTES = 2_000
ID_BYTES = 150
"""About what a context, and each id that it knows, cost beside items and tokens."""
TOKEN_BYTES = 8
"""A token's id in the buffer, and in the engine's run."""

_Key = tuple[str, str]
"""Tenant and response id."""


class KeptContexts:
    """At most ``max_contexts`` of them in ``max_bytes``, the longest unused out first; 0 of either keeps none.

    ``close_soon`` gets what is given up, to close its engine's run.
    """

    def __init__(self, max_contexts: int, max_bytes: int, close_soon: Callable[[Context], None]) -> None:
        self.bytes = 0
        self._max_contexts = max_contexts
        self._max_bytes = max_bytes
        self._close_soon = close_soon
        self._entries: OrderedDict[_Key, tuple[Context, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: _Key) -> bool:
        return key in self._entries

    @property
    def is_on(self) -> bool:
        """Whether anything is ever kept."""
        return self._max_contexts > 0 and self._max_bytes > 0

    def keep(self, tenant: str, latest: Latest) -> None:
        """Keep what its lane gives up, if it is stored and fits; what does not, or has to make room, is closed."""
        context = latest.context
        size = _size(context)
        if not latest.stored or not self.is_on or size > self._max_bytes:
            self._close_soon(context)
            return
        self._entries[tenant, latest.response_id] = context, size
        self.bytes += size
        while len(self._entries) > self._max_contexts or self.bytes > self._max_bytes:
            self.drop(next(iter(self._entries)))

    def take(self, key: _Key) -> Context | None:
        """The context, which is the caller's from now on; None if it is not here."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        context, size = entry
        self.bytes -= size
        return context

    def drop(self, key: _Key) -> None:
        """Forget a context, if it is here."""
        context = self.take(key)
        if context is not None:
            self._close_soon(context)

    def clear(self) -> None:
        """Forget all."""
        while self._entries:
            self.drop(next(iter(self._entries)))


def _size(context: Context) -> int:
    """About the bytes that a context holds, without walking its past."""
    past = context.past.size if context.past is not None else 0
    ids = len(context.item_ids) + len(context.call_ids)
    return CONTEXT_BYTES + past + TOKEN_BYTES * len(context.buffer) + ID_BYTES * ids
