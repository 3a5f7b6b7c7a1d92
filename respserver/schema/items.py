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

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Role = Literal["user", "assistant", "system", "developer"]


class OutputText(msgspec.Struct, tag_field="type", tag="output_text", kw_only=True):
    """Text that the model wrote."""

    text: str = ""
    annotations: list[Any] = msgspec.field(default_factory=list)  # Any: annotations are relayed, never made here
    logprobs: list[Any] = msgspec.field(default_factory=list)  # Any: as above


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


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call", kw_only=True):
    """A call of a function tool; ``arguments`` is JSON text."""

    id: str
    status: ItemStatus
    arguments: str = ""
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET


class CustomToolCall(msgspec.Struct, tag_field="type", tag="custom_tool_call", kw_only=True):
    """A call of a custom tool; ``input`` is free text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET


class Reasoning(msgspec.Struct, tag_field="type", tag="reasoning", kw_only=True):
    """What the model thought; a summary is shown if the request asks for one."""

    id: str
    status: ItemStatus
    summary: list[SummaryText] = msgspec.field(default_factory=list)
    content: list[ReasoningText] = msgspec.field(default_factory=list)
    encrypted_content: str | UnsetType | None = UNSET


OutputItem = OutputMessage | FunctionCall | CustomToolCall | Reasoning
OUTPUT_KIND_OF_CALL = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
CALL_KIND_OF_OUTPUT = {output: call for call, output in OUTPUT_KIND_OF_CALL.items()}


class InputPart(msgspec.Struct, kw_only=True):
    """One content part of an input item, whatever its kind; only text matters to our templates."""

    type: str
    text: str | None = None
    refusal: str | None = None


class MessageItem(msgspec.Struct, kw_only=True):
    """A message of any role, from a client or replayed."""

    raw: bytes
    role: Role
    parts: list[InputPart]
    id: str | None = None


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


class AdditionalToolsItem(msgspec.Struct, kw_only=True):
    """Tools that join the offer from this place of the context on (Codex' lite shape)."""

    raw: bytes
    tools: Raw
    id: str | None = None


class OpaqueItem(msgspec.Struct, kw_only=True):
    """An item kind that this server passes through as it is; it is part of the context as JSON text."""

    raw: bytes
    kind: str
    id: str | None = None
    call_id: str | None = None


InputItem = MessageItem | FunctionCallItem | CallOutputItem | ReasoningItem | AdditionalToolsItem | OpaqueItem
