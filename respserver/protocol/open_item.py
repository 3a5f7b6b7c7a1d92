"""One item while it grows: which events its deltas make, by kind (protocol.md section 3.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec
from msgspec import UNSET

from respserver.schema.events import (
    ContentPartAdded,
    ContentPartDone,
    CustomToolCallInputDelta,
    CustomToolCallInputDone,
    DeltaEvent,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    RefusalDelta,
    RefusalDone,
)
from respserver.schema.items import (
    CustomToolCall,
    FunctionCall,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    RefusalPart,
    SummaryText,
)
from respserver.schema.tools import ToolDef
from respserver.tokens.parse import ItemBegan

NewId = Callable[[str], str]
"""Makes an id with the given prefix."""
Padding = Callable[[int], str]
"""A string of so many characters for ``obfuscation``."""

PAD_TO = 16
"""Delta and obfuscation together fill a multiple of so many characters (protocol.md section 3.1)."""


class OpenItem(ABC):
    """What every kind has: ``added``, the events of its deltas, ``ended``."""

    item: OutputItem

    def __init__(self, index: int, padding: Padding | None) -> None:
        self.index = index
        self._padding = padding
        self._texts: list[str] = []

    def added(self) -> list[Event]:
        """``output_item.added``, with the item as it is at its start."""
        return [OutputItemAdded(output_index=self.index, item=msgspec.structs.replace(self.item))]

    def ended(self, complete: bool) -> list[Event]:
        """The events that close the item."""
        events = self.part_ended() + self.finish()
        self.item.status = "completed" if complete else "incomplete"
        return [*events, OutputItemDone(output_index=self.index, item=self.item)]

    def text(self, text: str) -> list[Event]:
        """More text of the open part, the arguments or the input."""
        self._texts.append(text)
        event = self.delta_event(text)
        if event is None:
            return []
        if self._padding is not None:
            event.obfuscation = self._padding(-len(text) % PAD_TO or PAD_TO)
        return [event]

    @abstractmethod
    def delta_event(self, text: str) -> DeltaEvent | None:
        """The event of a text delta; None if this text is not shown."""

    def part_began(self, refusal: bool) -> list[Event]:  # noqa: ARG002 - for the kinds that have parts
        """A content part begins."""
        return []

    def part_ended(self) -> list[Event]:
        """The open part, if any, ends."""
        return []

    def finish(self) -> list[Event]:
        """The ``.done`` events of an item without parts."""
        return []

    def take_text(self) -> str:
        """All text since the last take."""
        text = "".join(self._texts)
        self._texts.clear()
        return text


class OpenMessage(OpenItem):
    """A message: text and refusal parts, one after the other."""

    item: OutputMessage

    def __init__(self, item: OutputMessage, index: int, padding: Padding | None) -> None:
        super().__init__(index, padding)
        self.item = item
        self._part: OutputText | RefusalPart | None = None

    def added(self) -> list[Event]:
        """The message without its content: parts announce themselves."""
        empty = msgspec.structs.replace(self.item, content=[])
        return [OutputItemAdded(output_index=self.index, item=empty)]

    def part_began(self, refusal: bool) -> list[Event]:
        """``content_part.added``."""
        self._part = RefusalPart() if refusal else OutputText()
        return [
            ContentPartAdded(
                item_id=self.item.id,
                output_index=self.index,
                content_index=len(self.item.content),
                part=msgspec.structs.replace(self._part),
            )
        ]

    def delta_event(self, text: str) -> DeltaEvent | None:
        """``output_text.delta`` or ``refusal.delta``."""
        kind = RefusalDelta if isinstance(self._part, RefusalPart) else OutputTextDelta
        return kind(item_id=self.item.id, output_index=self.index, content_index=len(self.item.content), delta=text)

    def part_ended(self) -> list[Event]:
        """The part's whole text, then the part."""
        part, self._part = self._part, None
        if part is None:
            return []
        text = self.take_text()
        index = len(self.item.content)
        self.item.content.append(part)
        done: Event
        if isinstance(part, OutputText):
            part.text = text
            done = OutputTextDone(item_id=self.item.id, output_index=self.index, content_index=index, text=text)
        else:
            part.refusal = text
            done = RefusalDone(item_id=self.item.id, output_index=self.index, content_index=index, refusal=text)
        shown = ContentPartDone(item_id=self.item.id, output_index=self.index, content_index=index, part=part)
        return [done, shown]


class OpenReasoning(OpenItem):
    """Reasoning: each part is shown as a summary part if the request asked for a summary, else not at all."""

    item: Reasoning

    def __init__(self, item: Reasoning, index: int, padding: Padding | None, shown: bool) -> None:
        super().__init__(index, padding)
        self.item = item
        self._shown = shown
        self._in_part = False

    def added(self) -> list[Event]:
        """The item without its summary: parts announce themselves."""
        empty = msgspec.structs.replace(self.item, summary=[])
        return [OutputItemAdded(output_index=self.index, item=empty)]

    def part_began(self, refusal: bool) -> list[Event]:  # noqa: ARG002 - reasoning has one kind of part
        """``reasoning_summary_part.added``."""
        if not self._shown:
            return []
        self._in_part = True
        return [
            ReasoningSummaryPartAdded(
                item_id=self.item.id,
                output_index=self.index,
                summary_index=len(self.item.summary),
                part=SummaryText(),
            )
        ]

    def delta_event(self, text: str) -> DeltaEvent | None:
        """``reasoning_summary_text.delta``."""
        if not self._in_part:
            return None
        return ReasoningSummaryTextDelta(
            item_id=self.item.id, output_index=self.index, summary_index=len(self.item.summary), delta=text
        )

    def part_ended(self) -> list[Event]:
        """The part's whole text, then the part."""
        text = self.take_text()
        if not self._in_part:
            return []
        self._in_part = False
        index = len(self.item.summary)
        part = SummaryText(text=text)
        self.item.summary.append(part)
        return [
            ReasoningSummaryTextDone(item_id=self.item.id, output_index=self.index, summary_index=index, text=text),
            ReasoningSummaryPartDone(item_id=self.item.id, output_index=self.index, summary_index=index, part=part),
        ]


class OpenFunctionCall(OpenItem):
    """A function call and its arguments."""

    item: FunctionCall

    def __init__(self, item: FunctionCall, index: int, padding: Padding | None) -> None:
        super().__init__(index, padding)
        self.item = item

    def delta_event(self, text: str) -> DeltaEvent | None:
        """``function_call_arguments.delta``."""
        return FunctionCallArgumentsDelta(item_id=self.item.id, output_index=self.index, delta=text)

    def ended(self, complete: bool) -> list[Event]:
        """A whole call without arguments ends as ``{}``, in a delta too: some clients read only those (F13)."""
        events = self.text("{}") if complete and not self._texts else []
        return events + super().ended(complete)

    def finish(self) -> list[Event]:
        """``function_call_arguments.done``."""
        self.item.arguments = self.take_text()
        return [FunctionCallArgumentsDone(item_id=self.item.id, output_index=self.index, arguments=self.item.arguments)]


class OpenCustomCall(OpenItem):
    """A custom tool call and its input."""

    item: CustomToolCall

    def __init__(self, item: CustomToolCall, index: int, padding: Padding | None) -> None:
        super().__init__(index, padding)
        self.item = item

    def delta_event(self, text: str) -> DeltaEvent | None:
        """``custom_tool_call_input.delta``."""
        return CustomToolCallInputDelta(item_id=self.item.id, output_index=self.index, delta=text)

    def finish(self) -> list[Event]:
        """``custom_tool_call_input.done``."""
        self.item.input = self.take_text()
        return [CustomToolCallInputDone(item_id=self.item.id, output_index=self.index, input=self.item.input)]


def open_item(
    began: ItemBegan,
    index: int,
    new_id: NewId,
    *,
    offered: dict[str, ToolDef],
    show_summary: bool,
    padding: Padding | None,
) -> OpenItem:
    """The open item for what the model began, with fresh ids."""
    if began.kind == "message":
        return OpenMessage(OutputMessage(id=new_id("msg"), status="in_progress"), index, padding)
    if began.kind == "reasoning":
        return OpenReasoning(Reasoning(id=new_id("rs"), status="in_progress"), index, padding, show_summary)
    tool = offered.get(began.name)
    name = tool.name if tool else began.name
    namespace = tool.namespace if tool and tool.namespace else UNSET
    if began.kind == "function_call":
        call = FunctionCall(
            id=new_id("fc"), status="in_progress", call_id=new_id("call"), name=name, namespace=namespace
        )
        return OpenFunctionCall(call, index, padding)
    custom = CustomToolCall(
        id=new_id("ctc"), status="in_progress", call_id=new_id("call"), name=name, namespace=namespace
    )
    return OpenCustomCall(custom, index, padding)
