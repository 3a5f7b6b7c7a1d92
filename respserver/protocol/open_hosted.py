"""Items of calls that the server runs itself (protocol.md section 3.3, "Hosted tool").

Such an item stays open behind its arguments: it is done when its call has come to something, and by then items behind
it may have begun and ended. What is run, and when, is ``turn/hosted.py``'s.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import msgspec

from respserver.protocol.open_item import NewId, OpenItem, Padding
from respserver.schema.event import Event
from respserver.schema.events import DeltaEvent, OutputItemAdded, OutputItemDone
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
    ErrorText,
    ListedTool,
    McpApprovalRequest,
    McpCall,
    McpError,
    McpListTools,
    SealedSearch,
    SearchAction,
    SearchSource,
    WebSearchCall,
)
from respserver.schema.tools import search_query

NO_ARGUMENTS = "{}"


class Hosted(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the server runs, by the name that the model has said."""

    kind: Literal["mcp", "web_search"]
    name: str
    """What the item says."""
    qualified_name: str
    """What the model says."""
    label: str = ""
    needs_approval: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a call has come to: one of ``output``, which the model reads, and ``error``."""

    output: str | None = None
    error: str | None = None
    sources: list[tuple[str, str]] = []


class Searching(msgspec.Struct, frozen=True):
    """How searches are shown."""

    seal: Callable[[SealedSearch], str]
    """Makes ``encrypted_content``."""
    sources: bool = False
    """Whether the item lists what was found (``include``)."""


class OpenHosted(OpenItem):
    """A call whose arguments are whole, or on their way there."""

    hosted: Hosted
    arguments = ""

    def begun(self) -> list[Event]:
        """The call runs."""
        return []

    @abstractmethod
    def settled(self, outcome: Outcome) -> list[Event]:
        """The call has come to something."""

    @abstractmethod
    def abandoned(self) -> list[Event]:
        """The call was cut, and never came to anything."""


class OpenMcpCall(OpenHosted):
    """A call of an MCP server's tool."""

    item: McpCall

    def __init__(self, item: McpCall, hosted: Hosted, index: int, padding: Padding | None) -> None:
        super().__init__(index, padding)
        self.item = item
        self.hosted = hosted

    def added(self) -> list[Event]:
        """``output_item.added``, then ``mcp_call.in_progress``."""
        return [*super().added(), McpCallInProgress(item_id=self.item.id, output_index=self.index)]

    def delta_event(self, text: str) -> DeltaEvent | None:
        """``mcp_call_arguments.delta``."""
        return McpCallArgumentsDelta(item_id=self.item.id, output_index=self.index, delta=text)

    def ended(self, complete: bool) -> list[Event]:
        """``mcp_call_arguments.done``; a whole call without arguments has ``{}``, like a function call (F13)."""
        events = self.text(NO_ARGUMENTS) if complete and not self._texts else []
        self.arguments = self.item.arguments = self.take_text()
        done = McpCallArgumentsDone(item_id=self.item.id, output_index=self.index, arguments=self.arguments)
        return [*events, done] if complete else [*events, done, *self.abandoned()]

    def settled(self, outcome: Outcome) -> list[Event]:
        """``mcp_call.completed`` or ``.failed``, then the item with its result."""
        item, kind = self.item, McpCallCompleted if outcome.error is None else McpCallFailed
        item.output, item.status = outcome.output, "completed"
        if outcome.error is not None:
            item.error, item.status = McpError(content=[ErrorText(text=outcome.error)]), "failed"
        return [kind(item_id=item.id, output_index=self.index), OutputItemDone(output_index=self.index, item=item)]

    def abandoned(self) -> list[Event]:
        """The item as incomplete."""
        self.item.status = "incomplete"
        return [OutputItemDone(output_index=self.index, item=self.item)]


class OpenApproval(OpenHosted):
    """A call that the client has to approve: shown when it is whole. One that is cut asks for nothing, and is shown as
    the call that it would have been."""

    item: McpCall | McpApprovalRequest

    def __init__(self, hosted: Hosted, index: int, new_id: NewId) -> None:
        super().__init__(index, None)
        self.hosted = hosted
        self._new_id = new_id
        self.item = McpCall(id=new_id("mcp"), status="incomplete", name=hosted.name, server_label=hosted.label)

    def added(self) -> list[Event]:
        """Nothing yet."""
        return []

    def delta_event(self, text: str) -> DeltaEvent | None:  # noqa: ARG002 - no event tells of it
        """Nothing: the request is shown as a whole."""
        return None

    def ended(self, complete: bool) -> list[Event]:
        """The request, added and done at once."""
        self.arguments = self.take_text() or (NO_ARGUMENTS if complete else "")
        if complete:
            self.item = McpApprovalRequest(
                id=self._new_id("mcpr"),
                arguments=self.arguments,
                name=self.hosted.name,
                server_label=self.hosted.label,
            )
        else:
            self.item.arguments = self.arguments
        return [*super().added(), *self.abandoned()]

    def settled(self, outcome: Outcome) -> list[Event]:
        """Never comes: what was approved is a call of its own."""
        raise AssertionError(f"an approval comes to {outcome}")

    def abandoned(self) -> list[Event]:
        """The item as it stands."""
        return [OutputItemDone(output_index=self.index, item=self.item)]


class OpenSearch(OpenHosted):
    """A search."""

    item: WebSearchCall

    def __init__(self, item: WebSearchCall, hosted: Hosted, index: int, shown: Searching) -> None:
        super().__init__(index, None)
        self.item = item
        self.hosted = hosted
        self.sealed = SealedSearch(hosted.qualified_name, "", None)
        """What the model has said and read of it."""
        self._shown = shown

    def added(self) -> list[Event]:
        """``output_item.added``, then ``web_search_call.in_progress``."""
        added = OutputItemAdded(output_index=self.index, item=msgspec.structs.replace(self.item, action=SearchAction()))
        return [added, WebSearchCallInProgress(item_id=self.item.id, output_index=self.index)]

    def delta_event(self, text: str) -> DeltaEvent | None:  # noqa: ARG002 - no event tells of it
        """Nothing: a search's query comes with its end."""
        return None

    def ended(self, complete: bool) -> list[Event]:
        """The query is whole."""
        self.arguments = self.take_text() or (NO_ARGUMENTS if complete else "")
        self.item.action.query = search_query(self.arguments) or ""
        return [] if complete else self.abandoned()

    def begun(self) -> list[Event]:
        """``web_search_call.searching``."""
        self.item.status = "searching"
        return [WebSearchCallSearching(item_id=self.item.id, output_index=self.index)]

    def settled(self, outcome: Outcome) -> list[Event]:
        """``web_search_call.completed``, which a failed search has not; then the item."""
        self.item.status = "completed" if outcome.error is None else "failed"
        if self._shown.sources:
            self.item.action.sources = [SearchSource(url=url) for url, _ in outcome.sources]
        done = self._done(outcome.output, outcome.sources)
        if outcome.error is not None:
            return done
        return [WebSearchCallCompleted(item_id=self.item.id, output_index=self.index), *done]

    def abandoned(self) -> list[Event]:
        """The item as incomplete."""
        self.item.status = "incomplete"
        return self._done(None, [])

    def _done(self, output: str | None, sources: list[tuple[str, str]]) -> list[Event]:
        self.sealed = SealedSearch(self.hosted.qualified_name, self.arguments, output, sources)
        self.item.encrypted_content = self._shown.seal(self.sealed)
        return [OutputItemDone(output_index=self.index, item=self.item)]


class ToolList:
    """The list of an MCP server's tools, on its way."""

    def __init__(self, label: str, index: int, new_id: NewId) -> None:
        self.item = McpListTools(id=new_id("mcpl"), server_label=label)
        self._index = index

    def added(self) -> list[Event]:
        """``output_item.added``, then ``mcp_list_tools.in_progress``."""
        empty = msgspec.structs.replace(self.item, tools=[])
        return [
            OutputItemAdded(output_index=self._index, item=empty),
            McpListToolsInProgress(item_id=self.item.id, output_index=self._index),
        ]

    def settled(self, tools: list[ListedTool], error: str | None) -> list[Event]:
        """``mcp_list_tools.completed`` or ``.failed``, then the item."""
        self.item.tools, self.item.error = tools, error
        kind = McpListToolsCompleted if error is None else McpListToolsFailed
        return [
            kind(item_id=self.item.id, output_index=self._index),
            OutputItemDone(output_index=self._index, item=self.item),
        ]


def open_hosted(
    hosted: Hosted, index: int, new_id: NewId, *, padding: Padding | None, searching: Searching
) -> OpenHosted:
    """The open item for a call of a tool that the server runs."""
    if hosted.kind == "web_search":
        search = WebSearchCall(id=new_id("ws"), status="in_progress", action=SearchAction())
        return OpenSearch(search, hosted, index, searching)
    if hosted.needs_approval:
        return OpenApproval(hosted, index, new_id)
    call = McpCall(id=new_id("mcp"), status="in_progress", name=hosted.name, server_label=hosted.label)
    return OpenMcpCall(call, hosted, index, padding)
