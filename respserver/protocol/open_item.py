"""One item while it grows: which events its deltas make, by kind (protocol.md section 3.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from respserver.protocol.citations import cite
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
    OutputTextAnnotationAdded,
    OutputTextDelta,
    OutputTextDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    RefusalDelta,
    RefusalDone,
)
from respserver.schema.items import (
    CustomToolCall,
    FunctionCall,
    McpApprovalRequest,
    McpListTools,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningText,
    RefusalPart,
    SummaryText,
)
from respserver.schema.logprobs import Logprob
from respserver.schema.tools import ToolDef
from respserver.tokens.parse import ItemBegan, ScoredText

NewId = Callable[[str], str]
"""Makes an id with the given prefix."""
Padding = Callable[[int], str]
"""A string of so many characters for ``obfuscation``."""

PAD_TO = 16
"""Delta and obfuscation together fill a multiple of so many characters (protocol.md section 3.1)."""


class ReasoningShown(msgspec.Struct, frozen=True):
    """How much of the model's reasoning a client gets, and in which forms."""

    summary: bool = False
    text: bool = False
    seal: Callable[[list[str]], str] | None = None
    """Makes ``encrypted_content`` of the parts; None leaves it out."""


NOTHING_SHOWN = ReasoningShown()


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
        assert not isinstance(self.item, McpListTools | McpApprovalRequest)  # which have no status, and end otherwise
        self.item.status = "completed" if complete else "incomplete"
        return [*events, OutputItemDone(output_index=self.index, item=self.item)]

    def text(self, text: str) -> list[Event]:
        """More text of the open part, the arguments or the input."""
        self._texts.append(text)
        event = self.delta_event(text)
        if event is None:
            return []
        return [event] if self._padding is None else self._padded(event)

    def _padded(self, event: DeltaEvent) -> list[Event]:
        if self._padding is not None:
            event.obfuscation = self._padding(-len(event.delta) % PAD_TO or PAD_TO)
        return [event]

    def scored_text(self, scored: ScoredText) -> list[Event]:
        """More text, with the log probabilities of its tokens: only text parts of messages show them."""
        return self.text(scored.text)

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
        self.sources: Sequence[tuple[str, str]] = ()
        """What the text may quote."""
        self._part: OutputText | RefusalPart | None = None
        self._logprobs: list[Logprob] = []

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

    def scored_text(self, scored: ScoredText) -> list[Event]:
        """``output_text.delta`` with log probabilities; a refusal has none."""
        events = self.text(scored.text)
        for event in events:
            if isinstance(event, OutputTextDelta):
                event.logprobs = [logprob.in_stream for logprob in scored.logprobs]
                self._logprobs += scored.logprobs
        return events

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
            part.annotations = cite(text, self.sources)
            done = OutputTextDone(item_id=self.item.id, output_index=self.index, content_index=index, text=text)
            if self._logprobs:
                part.logprobs, self._logprobs = self._logprobs, []
                done.logprobs = [logprob.in_stream for logprob in part.logprobs]
        else:
            part.refusal = text
            done = RefusalDone(item_id=self.item.id, output_index=self.index, content_index=index, refusal=text)
        shown = ContentPartDone(item_id=self.item.id, output_index=self.index, content_index=index, part=part)
        return [*self._citations(part, index), done, shown]

    def _citations(self, part: OutputText | RefusalPart, index: int) -> list[Event]:
        return [
            OutputTextAnnotationAdded(
                item_id=self.item.id,
                output_index=self.index,
                content_index=index,
                annotation_index=number,
                annotation=citation,
            )
            for number, citation in enumerate(part.annotations if isinstance(part, OutputText) else ())
        ]


class OpenReasoning(OpenItem):
    """Reasoning: each part is shown as text, as a summary part, as both or not at all, and sealed at the end."""

    item: Reasoning

    def __init__(self, item: Reasoning, index: int, padding: Padding | None, shown: ReasoningShown) -> None:
        super().__init__(index, padding)
        self.item = item
        self._shown = shown
        self._thoughts: list[str] = []
        self._in_part = False

    def added(self) -> list[Event]:
        """The item without its parts: they announce themselves."""
        empty = msgspec.structs.replace(self.item, summary=[], content=[])
        return [OutputItemAdded(output_index=self.index, item=empty)]

    def ended(self, complete: bool) -> list[Event]:
        """What the model thought is sealed into the item before that is done."""
        events = self.part_ended()
        if self._shown.seal is not None:
            self.item.encrypted_content = self._shown.seal(self._thoughts)
        return events + super().ended(complete)

    def part_began(self, refusal: bool) -> list[Event]:  # noqa: ARG002 - reasoning has one kind of part
        """``content_part.added``, ``reasoning_summary_part.added``."""
        self._in_part = True
        item_id, at, events = self.item.id, self.index, list[Event]()
        if self._shown.text:
            index, text = len(self.item.content), ReasoningText()
            events.append(ContentPartAdded(item_id=item_id, output_index=at, content_index=index, part=text))
        if self._shown.summary:
            index, summary = len(self.item.summary), SummaryText()
            events.append(
                ReasoningSummaryPartAdded(item_id=item_id, output_index=at, summary_index=index, part=summary)
            )
        return events

    def text(self, text: str) -> list[Event]:
        """A delta in each of the forms in which the part is shown."""
        events = super().text(text)
        if self._shown.text and self._shown.summary:
            events += self._padded(self._summary_delta(text))
        return events

    def delta_event(self, text: str) -> DeltaEvent | None:
        """``reasoning_text.delta``, else ``reasoning_summary_text.delta``."""
        if self._shown.text:
            index = len(self.item.content)
            return ReasoningTextDelta(item_id=self.item.id, output_index=self.index, content_index=index, delta=text)
        return self._summary_delta(text) if self._shown.summary else None

    def part_ended(self) -> list[Event]:
        """The part's whole text, then the part."""
        if not self._in_part:
            return []
        self._in_part = False
        text = self.take_text()
        self._thoughts.append(text)
        return self._text_done(text) + self._summary_done(text)

    def _summary_delta(self, text: str) -> DeltaEvent:
        index = len(self.item.summary)
        return ReasoningSummaryTextDelta(item_id=self.item.id, output_index=self.index, summary_index=index, delta=text)

    def _text_done(self, text: str) -> list[Event]:
        if not self._shown.text:
            return []
        index, part = len(self.item.content), ReasoningText(text=text)
        self.item.content.append(part)
        return [
            ReasoningTextDone(item_id=self.item.id, output_index=self.index, content_index=index, text=text),
            ContentPartDone(item_id=self.item.id, output_index=self.index, content_index=index, part=part),
        ]

    def _summary_done(self, text: str) -> list[Event]:
        if not self._shown.summary:
            return []
        index, part = len(self.item.summary), SummaryText(text=text)
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
    reasoning: ReasoningShown,
    padding: Padding | None,
    sources: Sequence[tuple[str, str]] = (),
) -> OpenItem:
    """The open item for what the model began, with fresh ids."""
    if began.kind == "message":
        message = OutputMessage(id=new_id("msg"), status="in_progress", phase=began.phase or UNSET)
        opened = OpenMessage(message, index, padding)
        opened.sources = sources
        return opened
    if began.kind == "reasoning":
        return OpenReasoning(Reasoning(id=new_id("rs"), status="in_progress"), index, padding, reasoning)
    tool = offered.get(began.name)
    name = tool.name if tool else began.name
    namespace = tool.namespace if tool and tool.namespace else UNSET
    is_async = True if tool and tool.is_async else UNSET
    if began.kind == "function_call":
        call = FunctionCall(
            id=new_id("fc"),
            status="in_progress",
            call_id=new_id("call"),
            name=name,
            namespace=namespace,
            is_async=is_async,
        )
        return OpenFunctionCall(call, index, padding)
    custom = CustomToolCall(
        id=new_id("ctc"),
        status="in_progress",
        call_id=new_id("call"),
        name=name,
        namespace=namespace,
        is_async=is_async,
    )
    return OpenCustomCall(custom, index, padding)
