"""Server events, one struct each (protocol.md sections 3.2 and 4.1; design.md section 7 for ``response.done``).

Those of calls that the server runs itself are in ``hosted_events.py``.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from respserver.schema.event import Event as Event
from respserver.schema.hosted_events import (
    McpCallArgumentsDelta,
    McpCallArgumentsDone,
    McpCallCompleted,
    McpCallFailed,
    McpCallInProgress,
    McpListToolsCompleted,
    McpListToolsFailed,
    McpListToolsInProgress,
    WebSearchCallCompleted,
    WebSearchCallInProgress,
    WebSearchCallSearching,
)
from respserver.schema.items import (
    MessagePart,
    OutputItem,
    ReasoningText,
    SummaryText,
    UrlCitation,
)
from respserver.schema.logprobs import Logprob
from respserver.schema.response import Response

ContentPart = MessagePart | ReasoningText


class ResponseCreated(Event, tag="response.created"):
    """The turn was admitted."""

    response: Response


class ResponseInProgress(Event, tag="response.in_progress"):
    """The parent is bound and work begins."""

    response: Response


class ResponseCompleted(Event, tag="response.completed"):
    """Terminal: the response is whole."""

    response: Response


class ResponseIncomplete(Event, tag="response.incomplete"):
    """Terminal: a limit cut the response."""

    response: Response


class ResponseFailed(Event, tag="response.failed"):
    """Terminal: ``response.error`` tells why."""

    response: Response


class RequiredInput(msgspec.Struct, kw_only=True, frozen=True):
    """A stub of an output that the client owes."""

    type: str
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    approval_request_id: str | UnsetType = UNSET


class ResponseDone(Event, tag="response.done"):
    """Prototype mode: the loop is suspended until the outputs named here are appended."""

    response: Response
    required_input: list[RequiredInput]


class OutputItemAdded(Event, tag="response.output_item.added"):
    """An item begins."""

    output_index: int
    item: OutputItem


class OutputItemDone(Event, tag="response.output_item.done"):
    """An item is whole, or as whole as it will get."""

    output_index: int
    item: OutputItem


class ContentPartAdded(Event, tag="response.content_part.added"):
    """A content part begins."""

    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class ContentPartDone(Event, tag="response.content_part.done"):
    """A content part is whole."""

    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class OutputTextDelta(Event, tag="response.output_text.delta"):
    """More text."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[Logprob] = msgspec.field(default_factory=list)
    obfuscation: str | UnsetType = UNSET


class OutputTextDone(Event, tag="response.output_text.done"):
    """The part's whole text."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[Logprob] = msgspec.field(default_factory=list)


class OutputTextAnnotationAdded(Event, tag="response.output_text.annotation.added"):
    """The text quotes a source."""

    item_id: str
    output_index: int
    content_index: int
    annotation_index: int
    annotation: UrlCitation


class RefusalDelta(Event, tag="response.refusal.delta"):
    """More of a refusal."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class RefusalDone(Event, tag="response.refusal.done"):
    """The whole refusal."""

    item_id: str
    output_index: int
    content_index: int
    refusal: str


class FunctionCallArgumentsDelta(Event, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    item_id: str
    output_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class FunctionCallArgumentsDone(Event, tag="response.function_call_arguments.done"):
    """A call's whole arguments."""

    item_id: str
    output_index: int
    arguments: str


class CustomToolCallInputDelta(Event, tag="response.custom_tool_call_input.delta"):
    """More of a custom call's input."""

    item_id: str
    output_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class CustomToolCallInputDone(Event, tag="response.custom_tool_call_input.done"):
    """A custom call's whole input."""

    item_id: str
    output_index: int
    input: str


class ReasoningSummaryPartAdded(Event, tag="response.reasoning_summary_part.added"):
    """A part of a reasoning summary begins."""

    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class ReasoningSummaryPartDone(Event, tag="response.reasoning_summary_part.done"):
    """A part of a reasoning summary is whole."""

    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class ReasoningSummaryTextDelta(Event, tag="response.reasoning_summary_text.delta"):
    """More of a reasoning summary."""

    item_id: str
    output_index: int
    summary_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningSummaryTextDone(Event, tag="response.reasoning_summary_text.done"):
    """A summary part's whole text."""

    item_id: str
    output_index: int
    summary_index: int
    text: str


class ReasoningTextDelta(Event, tag="response.reasoning_text.delta"):
    """More text of a reasoning item, where that is shown."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningTextDone(Event, tag="response.reasoning_text.done"):
    """A part of a reasoning item is whole."""

    item_id: str
    output_index: int
    content_index: int
    text: str


class SteerId(msgspec.Struct, kw_only=True, frozen=True):
    """A submission of steering input."""

    id: str
    previous_response_id: str


class SteerEcho(msgspec.Struct, kw_only=True):
    """A submission that failed: its input as it came, and its id if it had one."""

    id: str | UnsetType = UNSET
    previous_response_id: str
    input: Raw


class SteerError(msgspec.Struct, kw_only=True, frozen=True):
    """Why it failed."""

    type: Literal["invalid_request_error"] = "invalid_request_error"
    code: str
    message: str


class SteerAccepted(Event, tag="response.steer.accepted"):
    """Steering input is queued, and not yet applied."""

    steer: SteerId


class SteerPending(Event, tag="response.steer.pending"):
    """Steering input waits for the create that brings the outputs named here."""

    steer: SteerId
    required_input: list[RequiredInput]
    reason: Literal["waiting_for_required_input"] = "waiting_for_required_input"


class SteerFailed(Event, tag="response.steer.failed"):
    """Steering input goes back: it was not accepted, or cannot be followed."""

    steer: SteerEcho
    error: SteerError


class ErrorDetail(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The nested error object; all four keys are always there."""

    type: str
    code: str
    message: str
    param: str | None
    headers: dict[str, str] | UnsetType = UNSET


class ErrorFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="error"):
    """WebSocket: a refused request or a connection-level error (protocol.md section 4.1)."""

    status: int
    error: ErrorDetail
    headers: dict[str, str] | UnsetType = UNSET
    stream_id: str | UnsetType = UNSET


class ErrorEvent(Event, tag="error"):
    """SSE: a failure after the stream began, nested with flat copies beside it; ``response.failed`` follows."""

    code: str
    message: str
    param: str | None
    error: ErrorDetail


SteerEvent = SteerAccepted | SteerPending | SteerFailed
ServerEvent = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | ResponseDone
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | OutputTextAnnotationAdded
    | RefusalDelta
    | RefusalDone
    | McpCallArgumentsDelta
    | McpCallArgumentsDone
    | McpCallInProgress
    | McpCallCompleted
    | McpCallFailed
    | McpListToolsInProgress
    | McpListToolsCompleted
    | McpListToolsFailed
    | WebSearchCallInProgress
    | WebSearchCallSearching
    | WebSearchCallCompleted
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | CustomToolCallInputDelta
    | CustomToolCallInputDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDelta
    | ReasoningSummaryTextDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | SteerAccepted
    | SteerPending
    | SteerFailed
)
Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
DeltaEvent = (
    OutputTextDelta
    | RefusalDelta
    | McpCallArgumentsDelta
    | FunctionCallArgumentsDelta
    | CustomToolCallInputDelta
    | ReasoningSummaryTextDelta
    | ReasoningTextDelta
)
TERMINAL_TYPES = frozenset({"response.completed", "response.incomplete", "response.failed"})
