"""What a store of responses is (design.md section 5). ``testing/checks.py`` holds the checks that every one passes."""

from __future__ import annotations

from typing import Protocol

from respserver.state import ResponseState, StoredItem


class Store(Protocol):
    """Keeps states by id and tenant. Another tenant's id answers exactly like an unknown one."""

    async def load(self, response_id: str, tenant: str) -> ResponseState | None:
        """The state, or None if it is unknown, deleted, expired, evicted or another tenant's."""
        ...

    async def load_chain(self, response_id: str, tenant: str) -> list[ResponseState] | None:
        """The state and all its ancestors, oldest first; None as for ``load``, or if an ancestor was never stored.

        Counts as a use of the whole chain.
        """
        ...

    async def touch(self, response_id: str, tenant: str) -> bool:
        """Whether ``load_chain`` would give the chain; counts as a use of all of it, and reads none of it."""
        ...

    async def load_item(self, item_id: str, tenant: str) -> StoredItem | None:
        """An item of any response that ``load`` would give, by the item's own id (``state.find_item``); else None.

        Counts as a use of that response. If several have an item of this id, any of them will do.
        """
        ...

    async def save(self, state: ResponseState) -> None:
        """Keep a state. The store sets ``branch``, ``position`` and ``fork_of``; saving an id again replaces it."""
        ...

    async def delete(self, response_id: str, tenant: str) -> bool:
        """Hide the id at once; False if there was nothing to hide. Living descendants keep their past."""
        ...

    async def aclose(self) -> None:
        """Free the store."""
        ...
