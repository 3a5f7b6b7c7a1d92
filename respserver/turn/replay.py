"""What clients send back: references are looked up and sealed texts opened before a turn is admitted.

All of it happens before ``response.created`` and changes nothing, so that what does not hold is refused like any other
input, over every transport in the same way (F32, F33).
"""

from __future__ import annotations

from respserver.errors import (
    InvalidEncryptedContent,
    ItemNotFound,
    LoneReasoning,
    MissingParameter,
)
from respserver.protocol.chain import Context, duplicate_item
from respserver.schema.input import check_sizes, read_input
from respserver.schema.items import (
    CompactionItem,
    FunctionCallItem,
    InputItem,
    ItemReference,
    McpCallItem,
    McpToolsItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    SearchItem,
)
from respserver.state import StoredItem
from respserver.store.base import Store
from respserver.turn.sealing import SealBroken, Sealer
from respserver.turn.services import Services

_STAND_INS = (ItemReference, ReasoningItem, CompactionItem, SearchItem)
"""What stands for something that is not in the request, or is sealed in it; most requests have none of them."""


async def take_in(items: list[InputItem], context: Context, tenant: str, services: Services) -> list[InputItem]:
    """The items of a request as the turn works with them. Raises an ``InvalidRequest`` that names the item at fault."""
    opened = items
    for item in items:
        if type(item) in _STAND_INS:
            found = await _resolve(items, context, tenant, services.store)
            opened = [_open(item, f"input[{index}]", tenant, services.sealer) for index, item in enumerate(found)]
            break
    if services.config.strict:
        check_reasoning(opened)
    check_sizes(opened, services.config.limits.media_bytes)
    return opened


def read_stored(stored: list[StoredItem], tenant: str, sealer: Sealer) -> list[InputItem]:
    """Stored items, typed again. They were verified when they came; if the key is another one since, what they show
    must do."""
    return [_open_if_possible(item, tenant, sealer) for item in read_input(_array(stored))]


def check_reasoning(items: list[InputItem]) -> None:
    """The strict rules for reasoning: a ``summary``, and behind it what the model went on with (F33).

    The mirror of the second, a call without its reasoning, cannot be seen here: nothing in a call tells whether the
    model thought before it.
    """
    for index, item in enumerate(items):
        if isinstance(item, ReasoningItem):
            if not item.has_summary:
                raise MissingParameter(f"input[{index}].summary")
            if index + 1 == len(items) or not _is_models(items[index + 1]):
                raise LoneReasoning(item.id or f"input[{index}]")


def _is_models(item: InputItem) -> bool:
    """Whether the model may have made this item."""
    if isinstance(item, MessageItem):
        return item.role == "assistant"
    if isinstance(item, OpaqueItem):
        return not item.kind.endswith(("_output", "_response"))
    return isinstance(item, FunctionCallItem | ReasoningItem | McpCallItem | McpToolsItem | SearchItem)


async def _resolve(items: list[InputItem], context: Context, tenant: str, store: Store) -> list[InputItem]:
    """The items with what references stand for in their place."""
    return [
        await _look_up(item, f"input[{index}].id", context, tenant, store) if isinstance(item, ItemReference) else item
        for index, item in enumerate(items)
    ]


async def _look_up(item: ItemReference, param: str, context: Context, tenant: str, store: Store) -> InputItem:
    if item.id in context.item_ids:
        raise duplicate_item(item.id, param)
    stored = await store.load_item(item.id, tenant)
    if stored is None:
        raise ItemNotFound(item.id, param)
    return read_input(_array([stored]))[0]


def _open(item: InputItem, param: str, tenant: str, sealer: Sealer) -> InputItem:
    try:
        return sealer.open_item(item, tenant)
    except SealBroken:
        raise InvalidEncryptedContent(getattr(item, "id", None) or param, f"{param}.encrypted_content") from None


def _open_if_possible(item: InputItem, tenant: str, sealer: Sealer) -> InputItem:
    try:
        return sealer.open_item(item, tenant)
    except SealBroken:
        return item


def _array(stored: list[StoredItem]) -> bytes:
    return b"[" + b",".join(item.json for item in stored) + b"]"
