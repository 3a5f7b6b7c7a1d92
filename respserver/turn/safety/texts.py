"""What there is to read in an item: the texts that the model is shown of it (``tokens/render.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from respserver.schema.codec import encode
from respserver.schema.items import (
    AdditionalToolsItem,
    CallOutputItem,
    CompactionItem,
    FunctionCallItem,
    InputItem,
    InputPart,
    ItemReference,
    McpCallItem,
    McpToolsItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    SearchItem,
)


def texts_of(item: InputItem) -> list[str]:
    """Each text by itself, for a classifier that reads; images and files have none."""
    match item:
        case MessageItem(parts=parts) | CallOutputItem(parts=parts):
            return _texts(parts)
        case FunctionCallItem(name=name, arguments=arguments):
            return [name, arguments]
        case ReasoningItem(thoughts=thoughts):
            return thoughts
        case CompactionItem(items=items):
            return [text for inner in items for text in texts_of(inner)]
        case AdditionalToolsItem(tools=tools):
            return [bytes(tools).decode("utf-8", "replace")]
        case McpCallItem(name=name, arguments=arguments, output=output, error=error):
            return [text for text in (name, arguments, output, error) if text]
        case SearchItem(sealed=sealed):
            return [] if sealed is None else [sealed.arguments, sealed.output or ""]
        case McpToolsItem(tools=listed):
            return [encode(listed).decode()]
        case OpaqueItem(raw=raw, shown=shown):
            return [(shown or raw).decode("utf-8", "replace")]
        case ItemReference():
            return []
        case _:  # pragma: no cover - the type checker sees that every kind stands above
            assert_never(item)


def _texts(parts: Sequence[InputPart]) -> list[str]:
    return [text for part in parts for text in (part.text, part.refusal) if text]
