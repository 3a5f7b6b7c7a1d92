"""The items of a rollout in the order in which the model has them, kept by the client: what is sent when the server has
lost its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from respserver.client.wire import Item, Json
from respserver.schema.codec import encode


class History:
    """Grows by what the model said, as the server told it, and by the outputs of tools."""

    def __init__(self, input: str | Sequence[Item]) -> None:
        self.items: list[Item] = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        self._seen: set[tuple[str, str | bytes]] = set()

    def add_output(self, response_id: str, output: Iterable[Json]) -> None:
        """Add the items of a response that have not been added before: a suspended one tells at its end what it has
        told at its pauses."""
        for item in output:
            key = (response_id, item["id"] if isinstance(item.get("id"), str) else encode(item))
            if key not in self._seen:
                self._seen.add(key)
                self.items.append(item)
