"""From item deltas to events and the final Response: one emitter a turn, in both modes.

The orders are those of protocol.md section 3.3. An item keeps its identity from ``output_item.added`` to the terminal
snapshot: there is one struct for it, and the events show that struct as it stands.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from respserver.errors import ApiError
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
    OutputItem,
)
from respserver.schema.response import IncompleteDetails, Response, ResponseError, Usage
from respserver.schema.tools import ToolDef, qualified_name
from respserver.state import OpenCall
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, PartBegan, ScoredText, TextDelta


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
    ) -> None:
        self.response = response
        self.open_calls: dict[str, OpenCall] = {}
        """Client calls of the turn that nobody has answered yet, and somebody must."""
        self.async_calls: dict[str, OpenCall] = {}
        """Calls of the turn whose outputs may come in any later one."""
        self.item_ids: list[str] = []
        self.call_ids: list[str] = []
        self.offered = offered or {}
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

    def complete(self, usage: Usage, now: int) -> list[Event]:
        """The end of a whole response."""
        return [ResponseCompleted(response=self._final("completed", usage=usage, completed_at=now))]

    def cut(self, reason: str, usage: Usage) -> list[Event]:
        """The end of a response that a limit cut; what is open is closed as incomplete."""
        events = self._close(False)
        details = IncompleteDetails(reason=reason)
        return [
            *events,
            ResponseIncomplete(response=self._final("incomplete", usage=usage, incomplete_details=details)),
        ]

    def fail(self, error: ApiError) -> list[Event]:
        """The end of a response that failed; what is open is closed as incomplete."""
        events = self._close(False)
        shown = ResponseError(code=error.code, message=error.message)
        return [*events, ResponseFailed(response=self._final("failed", error=shown))]

    def _begin_item(self, began: ItemBegan) -> list[Event]:
        opened = open_item(
            began,
            len(self._output),
            self._new_id,
            offered=self.offered,
            reasoning=self._reasoning,
            padding=self._padding,
        )
        self._open = opened
        self._output.append(opened.item)
        self.item_ids.append(opened.item.id)
        return opened.added()

    def _close(self, complete: bool) -> list[Event]:
        if self._open is None:
            return []
        events = self._open.ended(complete)
        item = self._open.item
        self._open = None
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
    if call.kind == "function_call":
        return RequiredInput(type=OUTPUT_KIND_OF_CALL[call.kind], call_id=call.call_id, name=call.name)
    return RequiredInput(type=OUTPUT_KIND_OF_CALL[call.kind], call_id=call.call_id)
