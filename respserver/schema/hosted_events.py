"""Events of calls that the server runs itself (protocol.md sections 3.2 and 3.3)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from respserver.schema.event import Event


class McpCallArgumentsDelta(Event, tag="response.mcp_call_arguments.delta"):
    """More of an MCP call's arguments."""

    item_id: str
    output_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class McpCallArgumentsDone(Event, tag="response.mcp_call_arguments.done"):
    """An MCP call's whole arguments."""

    item_id: str
    output_index: int
    arguments: str


class ItemEvent(Event):
    """Where an item of the server's own work stands."""

    item_id: str
    output_index: int


class McpCallInProgress(ItemEvent, tag="response.mcp_call.in_progress"):
    """An MCP call begins."""


class McpCallCompleted(ItemEvent, tag="response.mcp_call.completed"):
    """An MCP call has its result."""


class McpCallFailed(ItemEvent, tag="response.mcp_call.failed"):
    """An MCP call came to nothing."""


class McpListToolsInProgress(ItemEvent, tag="response.mcp_list_tools.in_progress"):
    """An MCP server is asked for its tools."""


class McpListToolsCompleted(ItemEvent, tag="response.mcp_list_tools.completed"):
    """An MCP server has told its tools."""


class McpListToolsFailed(ItemEvent, tag="response.mcp_list_tools.failed"):
    """An MCP server could not be asked."""


class WebSearchCallInProgress(ItemEvent, tag="response.web_search_call.in_progress"):
    """A search begins."""


class WebSearchCallSearching(ItemEvent, tag="response.web_search_call.searching"):
    """The search runs."""


class WebSearchCallCompleted(ItemEvent, tag="response.web_search_call.completed"):
    """The search is over, well or not."""
