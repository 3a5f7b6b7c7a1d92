"""What a turn adds to its chain: items with their origin, ids, tools on offer; kept for the next turn and the store."""

from __future__ import annotations

from collections.abc import Sequence

from respserver.protocol.chain import Context, called_by
from respserver.schema.codec import encode
from respserver.schema.items import (
    CustomToolCall,
    FunctionCall,
    InputItem,
    McpApprovalRequest,
    McpToolsItem,
    OutputItem,
    SearchItem,
    tools_of,
)
from respserver.state import StoredItem


class Notes:
    """One turn's, in the order in which its context has them."""

    def __init__(self) -> None:
        self.items: list[StoredItem] = []
        self.item_ids: list[str] = []
        self.call_ids: list[str] = []
        self.added_tools: list[bytes] = []
        self.listed: list[str] = []
        """Labels of MCP servers whose tools became part of the context."""
        self.items_in = 0

    def take_inputs(self, context: Context, items: Sequence[InputItem]) -> None:
        """These items are part of the context now."""
        self.items_in += len(items)
        for item in items:
            self.items.append(StoredItem("input", item.raw))
            if item.id:
                self._take_id(context, item.id)
            if (call_id := called_by(item)) is not None:
                self._take_call(context, call_id)
            if (tools := tools_of(item)) is not None:
                self.added_tools.append(tools)
            if isinstance(item, McpToolsItem) and item.tools:
                self.take_listed(context, item.server_label)
            elif isinstance(item, SearchItem) and item.sealed is not None:
                context.sources += item.sealed.sources

    def take_outputs(self, context: Context, items: Sequence[OutputItem]) -> None:
        """Likewise of what the turn has made itself."""
        for item in items:
            self.items.append(StoredItem("output", encode(item)))
            self._take_id(context, item.id)
            if isinstance(item, McpApprovalRequest):
                self._take_call(context, item.id)
            elif isinstance(item, FunctionCall | CustomToolCall):
                self._take_call(context, item.call_id)

    def take_listed(self, context: Context, label: str) -> None:
        """The context lists this MCP server's tools."""
        context.listed.add(label)
        self.listed.append(label)

    def _take_id(self, context: Context, item_id: str) -> None:
        self.item_ids.append(item_id)
        context.item_ids.add(item_id)

    def _take_call(self, context: Context, call_id: str) -> None:
        self.call_ids.append(call_id)
        context.call_ids.add(call_id)
