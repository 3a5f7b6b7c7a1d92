"""From item deltas to events and the final Response: one emitter a turn, in both modes.

The orders are those of protocol.md section 3.3. An item keeps its identity from ``output_item.added`` to the terminal
snapshot: there is one struct for it, and the events show that struct as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from respserver.errors import ApiError
from respserver.protocol.open_hosted import (
    Hosted,
    OpenApproval,
    OpenHosted,
    OpenMcpCall,
    OpenSearch,
    Outcome,
    Searching,
    ToolList,
    open_hosted,
)
from respserver.protocol.open_item import NOTHING_SHOWN, NewId, OpenItem, Padding, ReasoningShown, open_item
from respserver.schema.events import (
    Event,
    RequiredInput,
    ResponseCompleted,
    ResponseCreated,
    ResponseDone,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
)
from respserver.schema.items import (
    OUTPUT_KIND_OF_CALL,
    CustomToolCall,
    FunctionCall,
    ListedTool,
    McpApprovalRequest,
    McpCall,
    OutputItem,
)
from respserver.schema.response import IncompleteDetails, Response, ResponseError, Usage
from respserver.schema.tools import ToolDef, qualified_name
from respserver.state import OpenCall
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, PartBegan, ScoredText, TextDelta

_UNSEALED = Searching(seal=lambda search: "")  # noqa: ARG005 - for emitters of turns that cannot search


def _no_hosted(name: str) -> Hosted | None:  # noqa: ARG001 - none of the server's own
    return None


class Emitter:
    """Feeds on deltas, gives events back; ``response`` is always what a snapshot would show."""

    def __init__(
        self,
        response: Response,
        new_id: NewId,
        *,
        offered: dict[str, ToolDef] | None = None,
        reasoning: ReasoningShown = NOTHING_SHOWN,
        padding: Padding | None = None,
        searching: Searching = _UNSEALED,
    ) -> None:
        self.response = response
        self.open_calls: dict[str, OpenCall] = {}
        """Client calls of the turn that nobody has answered yet, and somebody must."""
        self.async_calls: dict[str, OpenCall] = {}
        """Calls of the turn whose outputs may come in any later one."""
        self.item_ids: list[str] = []
        self.call_ids: list[str] = []
        self.offered = offered or {}
        self.find_hosted: Callable[[str], Hosted | None] = _no_hosted
        """Which tool of the server's own a qualified name stands for."""
        self.hosted_calls: list[OpenHosted] = []
        """Whole calls of the turn that the server has to run yet, in order."""
        self.sources: list[tuple[str, str]] = []
        """What the searches of the context have found."""
        self.searches: dict[str, OpenSearch] = {}
        """The searches of the turn, by their items' ids."""
        self._listings: list[ToolList] = []
        self._searching = searching
        self._new_id = new_id
        self._reasoning = reasoning
        self._padding = padding
        self._output: list[OutputItem] = []
        self._paused_at = 0
        self._open: OpenItem | None = None

    @property
    def output(self) -> list[OutputItem]:
        """All items of the turn so far."""
        return self._output

    @property
    def since_pause(self) -> list[OutputItem]:
        """The items since the last pause, or since the start."""
        return self._output[self._paused_at :]

    @property
    def required_input(self) -> list[RequiredInput]:
        """Stubs of the outputs that the client owes."""
        return [_stub(call) for call in self.open_calls.values()]

    def begin(self) -> list[Event]:
        """``response.created`` and ``response.in_progress``."""
        return [ResponseCreated(response=self.response), ResponseInProgress(response=self.response)]

    def created(self) -> list[Event]:
        """``response.created`` alone: how a warm-up begins (protocol.md section 2.2)."""
        return [ResponseCreated(response=self.response)]

    def feed(self, delta: Delta) -> list[Event]:
        """The events that one delta of the parser makes."""
        opened = self._open
        if isinstance(delta, TextDelta) and opened is not None:  # nearly every delta is one
            return opened.text(delta.text)
        if isinstance(delta, ItemBegan):
            return self._begin_item(delta)
        if opened is None:
            return []
        if isinstance(delta, ItemEnded):
            return self._close(delta.complete)
        if isinstance(delta, PartBegan):
            return opened.part_began(delta.kind == "refusal")
        if isinstance(delta, ScoredText):
            return opened.scored_text(delta)
        return opened.part_ended()

    def pause(self, usage: Usage) -> ResponseDone:
        """``response.done``: the items since the last pause and the outputs that are owed (design.md section 7)."""
        snapshot = msgspec.structs.replace(self.response, output=self.since_pause, usage=usage)
        return ResponseDone(response=snapshot, required_input=self.required_input)

    def resume(self) -> None:
        """The owed outputs are in."""
        self.open_calls = {}
        self._paused_at = len(self._output)

    def list_tools(self, label: str) -> ToolList:
        """An item for the tools of an MCP server."""
        listing = ToolList(label, len(self._output), self._new_id)
        self._append(listing.item)
        self._listings.append(listing)
        return listing

    def listed(self, listing: ToolList, tools: list[ListedTool], error: str | None) -> list[Event]:
        """The tools are known, or why they are not."""
        self._listings.remove(listing)
        return listing.settled(tools, error)

    def settle(self, call: OpenHosted, outcome: Outcome) -> list[Event]:
        """One of ``hosted_calls`` has come to something."""
        self.hosted_calls.remove(call)
        self.sources += outcome.sources
        return call.settled(outcome)

    def call_approved(self, hosted: Hosted, arguments: str, request_id: str) -> list[Event]:
        """An item for a call that the client has approved; it is one of ``hosted_calls`` from now on."""
        item = McpCall(
            id=self._new_id("mcp"),
            status="in_progress",
            name=hosted.name,
            server_label=hosted.label,
            approval_request_id=request_id,
        )
        opened = OpenMcpCall(item, hosted, len(self._output), self._padding)
        self._append(item)
        self.hosted_calls.append(opened)
        return [*opened.added(), *opened.text(arguments), *opened.ended(True)]

    def complete(self, usage: Usage, now: int) -> list[Event]:
        """The end of a whole response."""
        return [ResponseCompleted(response=self._final("completed", usage=usage, completed_at=now))]

    def cut(self, reason: str, usage: Usage) -> list[Event]:
        """The end of a response that a limit cut; what is open is closed as incomplete."""
        events = self._close(False) + self._abandon()
        details = IncompleteDetails(reason=reason)
        return [
            *events,
            ResponseIncomplete(response=self._final("incomplete", usage=usage, incomplete_details=details)),
        ]

    def fail(self, error: ApiError) -> list[Event]:
        """The end of a response that failed; what is open is closed as incomplete."""
        events = self._close(False) + self._abandon()
        shown = ResponseError(code=error.code, message=error.message)
        return [*events, ResponseFailed(response=self._final("failed", error=shown))]

    def _begin_item(self, began: ItemBegan) -> list[Event]:
        hosted = self.find_hosted(began.name) if began.kind == "function_call" else None
        index, new_id, padding = len(self._output), self._new_id, self._padding
        opened: OpenItem
        if hosted is not None:
            opened = open_hosted(hosted, index, new_id, padding=padding, searching=self._searching)
            if isinstance(opened, OpenSearch):
                self.searches[opened.item.id] = opened
        else:
            offered, reasoning, sources = self.offered, self._reasoning, self.sources
            opened = open_item(
                began, index, new_id, offered=offered, reasoning=reasoning, padding=padding, sources=sources
            )
        self._open = opened
        self._append(opened.item)
        return opened.added()

    def _append(self, item: OutputItem) -> None:
        self._output.append(item)
        self.item_ids.append(item.id)

    def _abandon(self) -> list[Event]:
        """Close the calls that were never run."""
        events = [event for listing in self._listings for event in listing.settled([], "The response has ended.")]
        calls, self.hosted_calls, self._listings = self.hosted_calls, [], []
        return events + [event for call in calls for event in call.abandoned()]

    def _close(self, complete: bool) -> list[Event]:
        if self._open is None:
            return []
        opened, self._open = self._open, None
        events = opened.ended(complete)
        item = opened.item
        if isinstance(opened, OpenApproval):
            self._output[opened.index], self.item_ids[-1] = item, item.id  # only now it is known what it is
            if isinstance(item, McpApprovalRequest):
                name, kind = opened.hosted.qualified_name, "mcp_approval_request"
                self.open_calls[item.id] = OpenCall(item.id, kind, name, True, opened.arguments)
        elif isinstance(opened, OpenHosted) and complete:
            self.hosted_calls.append(opened)
        if isinstance(item, FunctionCall | CustomToolCall):
            self.call_ids.append(item.call_id)
            if complete:
                owed = item.is_async is not True
                name = qualified_name(item.namespace, item.name)
                calls = self.open_calls if owed else self.async_calls
                calls[item.call_id] = OpenCall(item.call_id, _kind(item), name, owed)
        return events

    def _final(
        self,
        status: Literal["completed", "incomplete", "failed"],
        *,
        usage: Usage | None = None,
        completed_at: int | None = None,
        error: ResponseError | None = None,
        incomplete_details: IncompleteDetails | None = None,
    ) -> Response:
        self.response = msgspec.structs.replace(
            self.response,
            status=status,
            output=self._output,
            usage=usage,
            completed_at=completed_at,
            error=error,
            incomplete_details=incomplete_details,
            service_tier=_actual_tier(self.response.service_tier),
        )
        return self.response


def _kind(item: FunctionCall | CustomToolCall) -> str:
    return "function_call" if isinstance(item, FunctionCall) else "custom_tool_call"


def _actual_tier(asked: str) -> str:
    """``auto`` becomes what was used (protocol.md section 6.1)."""
    return "default" if asked == "auto" else asked


def _stub(call: OpenCall) -> RequiredInput:
    if call.kind == "mcp_approval_request":
        return RequiredInput(type=OUTPUT_KIND_OF_CALL[call.kind], approval_request_id=call.call_id)
    if call.kind == "function_call":
        return RequiredInput(type=OUTPUT_KIND_OF_CALL[call.kind], call_id=call.call_id, name=call.name)
    return RequiredInput(type=OUTPUT_KIND_OF_CALL[call.kind], call_id=call.call_id)
