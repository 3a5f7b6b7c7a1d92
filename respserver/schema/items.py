"""Items and content parts, typed once.

Output items are what the server makes, always in the full shape that the strictest client parser needs (protocol.md
section 6.3). Input items are what clients send, leniently: a missing ``type`` means message, content is a string or
parts, and a kind that this file does not know passes through unharmed as ``OpaqueItem``. What a client sent stays in
``raw`` exactly as it was; the typed view beside it is what rules and rendering read.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from respserver.schema.logprobs import Logprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]
CallStatus = Literal["in_progress", "searching", "completed", "incomplete", "failed"]
"""Of a call that the server runs itself."""
Role = Literal["user", "assistant", "system", "developer"]


class UrlCitation(msgspec.Struct, tag_field="type", tag="url_citation", kw_only=True, frozen=True):
    """A place of a text that quotes a source: from character ``start_index`` to the one before ``end_index``."""

    url: str
    title: str
    start_index: int
    end_index: int


class OutputText(msgspec.Struct, tag_field="type", tag="output_text", kw_only=True):
    """Text that the model wrote."""

    text: str = ""
    annotations: list[UrlCitation] = msgspec.field(default_factory=list)
    logprobs: list[Logprob] = msgspec.field(default_factory=list)
    """Empty unless the request asked for them; with bytes."""


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal", kw_only=True):
    """The model's refusal."""

    refusal: str = ""


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text", kw_only=True):
    """Reasoning as it was sampled."""

    text: str = ""


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text", kw_only=True):
    """One part of a reasoning summary."""

    text: str = ""


MessagePart = OutputText | RefusalPart


class OutputMessage(msgspec.Struct, tag_field="type", tag="message", kw_only=True):
    """An assistant message that the server made."""

    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[MessagePart] = msgspec.field(default_factory=list)
    phase: str | UnsetType = UNSET
    """``commentary`` or ``final_answer``, if the model said one."""


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call", kw_only=True):
    """A call of a function tool; ``arguments`` is JSON text."""

    id: str
    status: ItemStatus
    arguments: str = ""
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    is_async: bool | UnsetType = msgspec.field(name="async", default=UNSET)
    """True if the output may come in any later turn (protocol.md section 5.5)."""


class CustomToolCall(msgspec.Struct, tag_field="type", tag="custom_tool_call", kw_only=True):
    """A call of a custom tool; ``input`` is free text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET
    is_async: bool | UnsetType = msgspec.field(name="async", default=UNSET)


class Reasoning(msgspec.Struct, tag_field="type", tag="reasoning", kw_only=True):
    """What the model thought: sealed, and readable as a summary or as text where that was asked for."""

    id: str
    status: ItemStatus
    summary: list[SummaryText] = msgspec.field(default_factory=list)
    content: list[ReasoningText] = msgspec.field(default_factory=list)
    encrypted_content: str | UnsetType | None = UNSET


class ErrorText(msgspec.Struct, tag_field="type", tag="text", kw_only=True, frozen=True):
    """Words about a failure."""

    text: str


class McpError(msgspec.Struct, tag_field="type", tag="mcp_tool_execution_error", kw_only=True, frozen=True):
    """Why a call failed."""

    content: list[ErrorText]


class McpCall(msgspec.Struct, tag_field="type", tag="mcp_call", kw_only=True):
    """A call of an MCP server's tool, and what came of it; ``arguments`` is JSON text."""

    id: str
    status: CallStatus
    arguments: str = ""
    name: str
    server_label: str
    output: str | None = None
    error: McpError | None = None
    approval_request_id: str | None = None


class ListedTool(msgspec.Struct, kw_only=True):
    """A tool of an MCP server."""

    name: str
    description: str | None = None
    input_schema: Any = None  # Any: a JSON schema
    annotations: Any = None  # Any: what the server says of its tool


class McpListTools(msgspec.Struct, tag_field="type", tag="mcp_list_tools", kw_only=True):
    """The tools of an MCP server as the model is told of them; ``error`` if they could not be listed."""

    id: str
    server_label: str
    tools: list[ListedTool] = msgspec.field(default_factory=list)
    error: str | None = None


class McpApprovalRequest(msgspec.Struct, tag_field="type", tag="mcp_approval_request", kw_only=True):
    """A call that waits until the client allows it."""

    id: str
    arguments: str
    name: str
    server_label: str


class SearchSource(msgspec.Struct, tag_field="type", tag="url", kw_only=True, frozen=True):
    """What a search has found."""

    url: str


class SearchAction(msgspec.Struct, tag_field="type", tag="search", kw_only=True):
    """What was searched for."""

    query: str = ""
    sources: list[SearchSource] | UnsetType = UNSET


class WebSearchCall(msgspec.Struct, tag_field="type", tag="web_search_call", kw_only=True):
    """A search. What the model said and read is sealed inside, so that it is not lost when the item is sent back."""

    id: str
    status: CallStatus
    action: SearchAction
    encrypted_content: str | UnsetType = UNSET


OutputItem = (
    OutputMessage
    | FunctionCall
    | CustomToolCall
    | Reasoning
    | McpCall
    | McpListTools
    | McpApprovalRequest
    | WebSearchCall
)
OUTPUT_KIND_OF_CALL = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Calls that a client answers, and what with. All other calls carry their results inside, or need none."""
CALL_KIND_OF_OUTPUT = {output: call for call, output in OUTPUT_KIND_OF_CALL.items()}


class InputPart(msgspec.Struct, kw_only=True):
    """One content part of an input item, whatever its kind: its text, or the room that it takes without one."""

    type: str
    text: str | None = None
    refusal: str | None = None
    pads: int = 0
    """Tokens that an image or a file takes beside its name."""
    size: int = 0
    """Bytes of an image or a file that came with the message."""


class MessageItem(msgspec.Struct, kw_only=True):
    """A message of any role, from a client or replayed."""

    raw: bytes
    role: Role
    parts: list[InputPart]
    id: str | None = None
    phase: str | None = None


class FunctionCallItem(msgspec.Struct, kw_only=True):
    """A tool call that a client replays; ``kind`` tells function from custom."""

    raw: bytes
    kind: Literal["function_call", "custom_tool_call"]
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None
    complete: bool = True
    """False for a call that a limit cut: nobody owes its output."""
    is_async: bool = False
    """Whether the output may come in any later turn."""


class CallOutputItem(msgspec.Struct, kw_only=True):
    """What a tool returned; ``name`` is the called tool's, filled in when the output is paired with its call."""

    raw: bytes
    kind: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    parts: list[InputPart]
    name: str = ""
    id: str | None = None


class ReasoningItem(msgspec.Struct, kw_only=True):
    """A reasoning item that a client replays."""

    raw: bytes
    summary: list[str]
    content: list[str]
    encrypted_content: str | None = None
    id: str | None = None
    has_summary: bool = True
    """Whether there was a ``summary`` at all, if only an empty one."""
    sealed: list[str] | None = None
    """What ``encrypted_content`` turned out to hold (``turn/sealing.py``)."""

    @property
    def thoughts(self) -> list[str]:
        """What the model is shown: what was sealed, which nobody can have changed, before what can be read."""
        return self.sealed if self.sealed is not None else self.content or self.summary


class CompactionItem(msgspec.Struct, kw_only=True):
    """A context that was made smaller. It stands for the items that are sealed inside."""

    raw: bytes
    encrypted_content: str | None = None
    id: str | None = None
    items: list[InputItem] = []
    """What ``encrypted_content`` turned out to hold (``turn/sealing.py``)."""


class AdditionalToolsItem(msgspec.Struct, kw_only=True):
    """Tools that join the offer from this place of the context on (Codex' lite shape)."""

    raw: bytes
    tools: Raw
    id: str | None = None


class ItemReference(msgspec.Struct, kw_only=True):
    """Stands for a stored item; a turn that is admitted has that item in its place (``turn/replay.py``)."""

    raw: bytes
    id: str


class OpaqueItem(msgspec.Struct, kw_only=True):
    """An item kind that this server passes through as it is; it is part of the context as JSON text."""

    raw: bytes
    kind: str
    id: str | None = None
    call_id: str | None = None
    """By what a call and its output know each other. None if there is nothing to pair."""
    owed: bool = False
    """Whether this is a call whose output must come."""
    tools: Raw | None = None
    """Tools that join the offer from here on: what a tool search found."""
    shown: bytes | None = None
    """The JSON text for the context, if that is not all of ``raw``: image data is left out of it."""
    pads: int = 0
    """Tokens that an image inside takes."""
    size: int = 0
    """Bytes of an image inside."""


class ApprovalRequestItem(OpaqueItem, kw_only=True):
    """A call that waited for the client's approval; ``name`` is the qualified one."""

    name: str
    arguments: str


class ApprovalResponseItem(OpaqueItem, kw_only=True):
    """The client's word about such a call, whose name and arguments are filled in when the two are paired."""

    approve: bool
    reason: str | None = None
    name: str = ""
    arguments: str = ""


class McpCallItem(msgspec.Struct, kw_only=True):
    """A call of an MCP server's tool that a client replays; ``name`` is the qualified one."""

    raw: bytes
    name: str
    arguments: str
    output: str | None = None
    error: str | None = None
    approval_request_id: str | None = None
    id: str | None = None


class McpToolsItem(msgspec.Struct, kw_only=True):
    """The list of an MCP server's tools that a client replays."""

    raw: bytes
    server_label: str
    tools: list[ListedTool]
    id: str | None = None


class SearchItem(msgspec.Struct, kw_only=True):
    """A search that a client replays, with what is sealed in it."""

    raw: bytes
    encrypted_content: str
    id: str | None = None
    sealed: SealedSearch | None = None
    """What ``encrypted_content`` turned out to hold (``turn/sealing.py``)."""


class SealedSearch(msgspec.Struct, array_like=True, frozen=True):
    """What a search item keeps for the model: the name and the arguments that it said, what it read, and what was found
    as pairs of address and title. Without an output it was cut before it ran."""

    name: str
    arguments: str
    output: str | None
    sources: list[tuple[str, str]] = []


InputItem = (
    MessageItem
    | FunctionCallItem
    | CallOutputItem
    | ReasoningItem
    | CompactionItem
    | AdditionalToolsItem
    | ItemReference
    | McpCallItem
    | McpToolsItem
    | SearchItem
    | OpaqueItem
)


def tools_of(item: InputItem) -> bytes | None:
    """The JSON array of tools that an item puts on offer, if it does that."""
    tools = item.tools if isinstance(item, AdditionalToolsItem | OpaqueItem) else None
    return None if tools is None else bytes(tools)
