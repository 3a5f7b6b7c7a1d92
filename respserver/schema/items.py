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
Role = Literal["user", "assistant", "system", "developer"]


class OutputText(msgspec.Struct, tag_field="type", tag="output_text", kw_only=True):
    """Text that the model wrote."""

    text: str = ""
    annotations: list[Any] = msgspec.field(default_factory=list)  # Any: annotations are relayed, never made here
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


OutputItem = OutputMessage | FunctionCall | CustomToolCall | Reasoning
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


InputItem = (
    MessageItem
    | FunctionCallItem
    | CallOutputItem
    | ReasoningItem
    | CompactionItem
    | AdditionalToolsItem
    | ItemReference
    | OpaqueItem
)


def tools_of(item: InputItem) -> bytes | None:
    """The JSON array of tools that an item puts on offer, if it does that."""
    tools = item.tools if isinstance(item, AdditionalToolsItem | OpaqueItem) else None
    return None if tools is None else bytes(tools)
