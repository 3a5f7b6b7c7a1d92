"""Hosted tools: the loop stops, the server itself runs what the model has called, and sampling goes on.

The same place in the loop as a client's tool has, and no other: calls are run when a sampling run is over, side by
side, each with a deadline. What they come to is told in call order, and the model reads each output directly behind its
call. A failure is an item and a text for the model, never the end of the response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from respserver.errors import ApiError
from respserver.logger import get_logger
from respserver.message_socket import SocketClosed
from respserver.protocol.emitter import Emitter
from respserver.protocol.open_hosted import Hosted, OpenHosted, OpenSearch, Outcome, ToolList
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.schema.input import read_input
from respserver.schema.items import ApprovalResponseItem, InputItem, ListedTool, McpCall, McpCallItem, SearchItem
from respserver.schema.request import CreateRequest
from respserver.schema.tools import SEARCH_NAME, HostedDef, ToolChoice
from respserver.tokens.render import failed
from respserver.tools.base import HostedTool, Result, Toolbox, ToolboxUnavailable
from respserver.turn.services import Port, Services
from respserver.turn.stopwatch import Stopwatch

log = get_logger("respserver.turn")
T = TypeVar("T")
Ran = tuple[OpenHosted, str]
"""A call that has come to something, and what the model reads of it."""


class HostedTools:
    """One turn's. ``emitter.hosted_calls`` says what is to be run."""

    def __init__(
        self,
        request: CreateRequest,
        choice: ToolChoice,
        emitter: Emitter,
        port: Port,
        services: Services,
        watch: Stopwatch,
    ) -> None:
        self.is_exhausted = False
        """Whether the model goes on calling though it was told that it may not: the turn is over."""
        self._definitions = [one for one in request.tools.hosted if port.toolboxes.serves(one)]
        limits = services.config.limits
        self._most = min(request.params.max_tool_calls or limits.hosted_calls, limits.hosted_calls)
        self._seconds = limits.hosted_seconds
        self._choice = choice
        self._emitter = emitter
        self._port = port
        self._services = services
        self._watch = watch
        self._boxes: dict[str, Toolbox | str] = {}
        """By label (a search has none): what is open, or why it is not."""
        self._tools: dict[str, Hosted] = {}
        self._called = 0
        emitter.find_hosted = self.find

    @property
    def tool_names(self) -> tuple[str, ...]:
        """What ``tool_choice`` leaves of the offer, as qualified names; none are all."""
        chosen = [name for other in self._choice.others for name in self._names_of(other.server_label, other.name)]
        return (*self._choice.names, *chosen)

    @property
    def are_open(self) -> bool:
        """Whether this request defines any."""
        return bool(self._boxes)

    @property
    def offered(self) -> tuple[str, ...]:
        """The qualified names that the server runs."""
        return tuple(self._tools)

    def find(self, name: str) -> Hosted | None:
        """The tool of a qualified name; one that a server did not list is still the server's to refuse."""
        if (tool := self._tools.get(name)) is not None or not self._boxes:
            return tool
        label, dot, rest = name.partition(".")
        is_ours = label and dot and label in self._boxes  # a search has no label
        return Hosted(kind="mcp", name=rest, qualified_name=name, label=label) if is_ours else None

    def runs(self, name: str) -> bool:
        """Whether a call of this name is run as soon as the model is done."""
        hosted = self.find(name)
        return hosted is not None and not hosted.needs_approval

    async def open(self, listed: set[str]) -> list[ToolList]:
        """Open what the request defines; tools of servers that the context does not list yet become items, which are
        given back."""
        if not self._definitions:
            return []
        self._watch.begin("hosted")
        listings: dict[int, ToolList] = {}
        for index, one in enumerate(self._definitions):
            if one.kind == "mcp" and one.label not in listed:
                listings[index] = self._emitter.list_tools(one.label)
        await self._tell([event for listing in listings.values() for event in listing.added()])

        async def opened(index: int, box: Toolbox | str) -> None:
            definition = self._definitions[index]
            self._take(definition, box)
            if (listing := listings.get(index)) is not None:
                tools, error = ([], box) if isinstance(box, str) else (_listed(definition.label, box.tools), None)
                await self._tell(self._emitter.listed(listing, tools, error))

        await side_by_side([partial(self._open, one) for one in self._definitions], opened)
        return list(listings.values())

    async def begin_approved(self, items: Sequence[InputItem]) -> None:
        """Make calls of what the client has approved among ``items``, unless it sends their results as well."""
        done = {item.approval_request_id for item in items if isinstance(item, McpCallItem)}
        for item in items:
            if isinstance(item, ApprovalResponseItem) and item.approve and item.call_id not in done:
                assert item.call_id is not None  # it was paired by that
                label, _, name = item.name.partition(".")
                hosted = Hosted(kind="mcp", name=name, qualified_name=item.name, label=label)
                await self._tell(self._emitter.call_approved(hosted, item.arguments, item.call_id))

    async def run(self) -> list[Ran]:
        """Run the calls that wait, side by side."""
        calls = list(self._emitter.hosted_calls)
        if not calls:
            return []
        self._watch.begin("hosted")
        self.is_exhausted = self._called > self._most  # it was told so behind an earlier run
        refusals = [self._refusal(call) for call in calls]
        await self._tell([event for call in calls for event in call.begun()])
        told: list[str] = []

        async def ran(index: int, result: Result) -> None:
            outcome, text = self._outcome(calls[index], result)
            told.append(text)
            await self._tell(self._emitter.settle(calls[index], outcome))

        jobs = [partial(self._run, call, refusal) for call, refusal in zip(calls, refusals, strict=True)]
        await side_by_side(jobs, ran)
        return list(zip(calls, told, strict=True))

    def release(self) -> None:
        """The turn is over."""
        for box in self._boxes.values():
            if not isinstance(box, str):
                self._port.toolboxes.give_back(box)
        self._boxes = {}

    def _take(self, definition: HostedDef, box: Toolbox | str) -> None:
        earlier = self._boxes.get(definition.label)
        if earlier is not None and not isinstance(earlier, str):  # a search under two of its names
            self._port.toolboxes.give_back(earlier)
        self._boxes[definition.label] = box
        if isinstance(box, str):
            return
        for tool in box.tools:
            self._tools[tool.name] = Hosted(
                kind=definition.kind,
                name=_bare(definition.label, tool.name),
                qualified_name=tool.name,
                label=definition.label,
                needs_approval=tool.needs_approval,
            )

    async def _open(self, definition: HostedDef) -> Toolbox | str:
        try:
            return await self._port.toolboxes.take(definition)
        except (ToolboxUnavailable, ApiError) as error:
            return str(error)
        except Exception:
            log.exception("toolbox_fault", connection_id=self._port.connection_id, kind=definition.kind)
            return "The tools could not be listed."

    def _refusal(self, call: OpenHosted) -> str | None:
        """Why a call is not run. Its turn to count comes here, in call order."""
        self._called += 1
        if self._called > self._most:
            return f"This call was not run: a response may make {self._most} calls. Answer without more of them."
        name, names = call.hosted.qualified_name, self.tool_names
        is_approved = isinstance(call.item, McpCall) and call.item.approval_request_id is not None
        if not is_approved and (self._choice.mode == "none" or (names and name not in names)):
            return "This call was not run: the request's tool_choice does not allow it."
        box = self._boxes.get(call.hosted.label)
        if box is None:
            return f"The request defines no tools of '{call.hosted.label}'."
        return box if isinstance(box, str) else None

    async def _run(self, call: OpenHosted, refusal: str | None) -> Result:
        box = self._boxes.get(call.hosted.label)
        if refusal is not None or box is None or isinstance(box, str):
            return Result(error=refusal)
        self._services.metrics.hosted_calls += 1
        try:
            with trio.move_on_after(self._seconds):
                return await box.call(call.hosted.qualified_name, call.arguments)
        except Exception:
            log.exception("hosted_tool_fault", connection_id=self._port.connection_id, kind=call.hosted.kind)
            return Result(error="The tool failed.")
        return Result(error=f"The tool gave no result within {self._seconds:g} seconds.")

    def _outcome(self, call: OpenHosted, result: Result) -> tuple[Outcome, str]:
        """What the item shows, and what the model reads: of a search, what it found with numbers."""
        if result.error is not None:
            text = failed(result.error)
            return Outcome(output=text if call.hosted.kind == "web_search" else None, error=result.error), text
        first = len(self._emitter.sources) + 1
        found = [f"[{number}] {one.title}\n{one.url}\n{one.text}" for number, one in enumerate(result.sources, first)]
        text = "\n\n".join([result.text, *found] if result.text else found)
        return Outcome(output=text, sources=[(one.url, one.title) for one in result.sources]), text

    def _names_of(self, label: str, name: str) -> list[str]:
        if not label:
            return [SEARCH_NAME]
        if name:
            return [f"{label}.{name}"]
        return [tool.qualified_name for tool in self._tools.values() if tool.label == label]

    async def _tell(self, events: list[Event]) -> None:
        if events:
            self._port.send(events)
            await self._port.drain()
            self._watch.begin("hosted")


async def side_by_side(jobs: Sequence[Callable[[], Awaitable[T]]], take: Callable[[int, T], Awaitable[None]]) -> None:
    """Run all jobs at once; ``take`` gets what each came to, in their order. If ``take`` fails, all of them end."""
    results: dict[int, T] = {}
    ready = [trio.Event() for _ in jobs]
    failure: ApiError | SocketClosed | None = None

    async def run(index: int) -> None:
        results[index] = await jobs[index]()
        ready[index].set()

    async with trio.open_nursery() as nursery:
        for index in range(len(jobs)):
            nursery.start_soon(run, index)
        try:
            for index, event in enumerate(ready):
                await event.wait()
                await take(index, results.pop(index))
        except (ApiError, SocketClosed) as error:  # which a nursery would wrap
            failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def as_input(call: OpenHosted) -> InputItem:
    """A call that has come to something as it would be if a client sent it back: what there is to screen."""
    item, raw = call.item, encode(call.item)
    if isinstance(call, OpenSearch):
        return SearchItem(raw=raw, encrypted_content="", id=item.id, sealed=call.sealed)
    return read_input(b"[" + raw + b"]")[0]


def _listed(label: str, tools: Sequence[HostedTool]) -> list[ListedTool]:
    return [
        ListedTool(
            name=_bare(label, tool.name),
            description=tool.description,
            input_schema=tool.parameters if tool.parameters is not None else {},
            annotations=tool.annotations,
        )
        for tool in tools
    ]


def _bare(label: str, name: str) -> str:
    return name.removeprefix(f"{label}.") if label else name
