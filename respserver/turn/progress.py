"""What a running turn has done so far: its response, usage, items and times, and the steps that add to them."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from respserver.engines.base import SamplingParams
from respserver.errors import ApiError
from respserver.protocol.chain import Context, Past
from respserver.protocol.emitter import Emitter
from respserver.protocol.open_hosted import Searching
from respserver.protocol.open_item import ReasoningShown
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.schema.items import InputItem
from respserver.schema.request import CreateRequest
from respserver.schema.response import CacheDiagnostics, Usage
from respserver.state import ResponseState
from respserver.tokens.logprobs import ScoredParser
from respserver.tokens.parse import OutputParser
from respserver.tokens.render import Pieces, output_text, search_pieces
from respserver.turn.comparison import UNAVAILABLE, Compared, diagnose, find_compared
from respserver.turn.hosted import HostedTools, Ran, as_input
from respserver.turn.metering import Meter
from respserver.turn.notes import Notes
from respserver.turn.plan import Plan, screen_first, whole_context
from respserver.turn.postinference import TurnRecord
from respserver.turn.record import LEFT, loggable, loggable_names
from respserver.turn.rendering import remember_sampled, render_items, render_pieces
from respserver.turn.response import new_response, pads, with_timings, with_verdict
from respserver.turn.sampler import Sampler
from respserver.turn.services import Port, Services
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.window import Window


class Progress:
    """One admitted turn. ``cut`` is why it is incomplete, once a token limit or steering input has ended it."""

    def __init__(self, request: CreateRequest, plan: Plan, port: Port, services: Services, watch: Stopwatch) -> None:
        self.cut: str | None = None
        self._closing: list[Event] = []
        self._held: list[Event] = []
        self.verdict = plan.verdict
        """What the classifiers have said of the chain, this turn included."""
        self._request = request
        self._plan = plan
        self._port = port
        self._services = services
        keeps = port.keeps_context or (request.stored and services.kept.is_on)
        self._meter = Meter(request, keeps=keeps)
        self._notes = Notes()
        self._pauses = 0
        self._body_start = 0
        self._sampled_from = 0
        self._sources_start = 0
        self._noted = 0
        """Output items that are part of the past already."""
        self._shown = 0
        self._has_added = False
        """Whether the buffer holds what the engine was not shown, and a run is to begin."""
        self._has_called = False
        self._behind: list[array[int]] = []
        self._diagnostics: CacheDiagnostics | UnsetType = UNSET
        self._sampler: Sampler | None = None
        self._watch = watch
        response = new_response(request, services.new_id("resp"), int(services.now()))
        self.emitter = Emitter(
            response,
            services.new_id,
            offered=plan.offered,
            reasoning=ReasoningShown(
                summary=response.reasoning.shows_summary,
                text=services.config.reasoning_text,
                seal=partial(services.sealer.seal_thoughts, port.tenant),
            ),
            padding=services.padding if pads(request, services.config.obfuscation) else None,
            searching=Searching(
                seal=partial(services.sealer.seal_search, port.tenant),
                sources="web_search_call.action.sources" in (request.params.include or ()),
            ),
        )
        self.hosted = HostedTools(request, plan.tool_choice, self.emitter, port, services, watch)
        self._parser = OutputParser(plan.route.template.token_bytes)
        self._window = Window(plan.context, request, plan.route, port.tenant, services, watch)

    @property
    def usage(self) -> Usage:
        """What the turn has cost so far."""
        return self._meter.usage

    def bind(self, context: Context) -> None:
        """The turn owns its context now; what comes after this point of the buffer is the turn's own."""
        self._body_start = len(context.buffer)
        self._sources_start = len(context.sources)
        self.emitter.sources = context.sources

    async def screen(self, context: Context, items: list[InputItem]) -> None:
        """What comes on the way, an append or the outputs of the server's own tools, is screened like the input of a
        turn. Raises ``ContentPolicyViolation``."""
        self._watch.begin("screen")
        services = self._services
        self.verdict = await screen_first(services, self._port.tenant, context, self._notes.items, items, self.verdict)

    async def extend(self, context: Context, items: list[InputItem]) -> None:
        """Render new items into the buffer and give the engine what it has not had, while the classifiers that may
        run beside that do. Raises ``ApiError``."""
        await self._beside(context, items, partial(self._extend, context, items))

    async def _beside(self, context: Context, items: list[InputItem], rendering: Callable[[], Awaitable[None]]) -> None:
        if not self._services.screening.is_on:
            await rendering()
            return
        everything = whole_context(self._services, self._port.tenant, context, self._notes.items, items)
        self.verdict = await self._services.screening.beside(rendering, items, everything, self.verdict)
        self.verdict.raise_if_blocked()

    async def _extend(self, context: Context, items: list[InputItem]) -> None:
        self._notes.take_inputs(context, items)
        wanted = self._request.compares_with if not self._pauses else None  # a turn's first input is compared
        compared = await self._compared(wanted, context) if wanted is not None else None
        context.buffer.extend(await render_items(self._plan.route.template, self._port.tenant, items, self._services))
        await self._show(context)
        if wanted is not None:
            is_whole = self._window.shown is context
            self._diagnostics = diagnose(compared, context, self._request) if is_whole else UNAVAILABLE
        context.model, context.tools_digest = self._request.params.model or "", self._request.tools.digest
        self._watch.begin("screen")  # sampling may still have to wait for a classifier

    async def list_tools(self, context: Context) -> None:
        """Open the hosted tools; the lists of their tools stand behind the input."""
        listings = [listing.item for listing in await self.hosted.open(context.listed)]
        if not listings:
            return
        for item in listings:
            if item.tools:
                self._notes.take_listed(context, item.server_label)
        await self._add(context, [self._plan.route.template.item(item) for item in listings])

    async def run_approved(self, context: Context, items: list[InputItem]) -> None:
        """Run the calls that the client has approved. They were not sampled, and stand behind its word as a whole."""
        await self.hosted.begin_approved(items)
        if not self.emitter.hosted_calls:
            return
        ran = await self.hosted.run()
        pieces = [self._plan.route.template.item(call.item) for call, _ in ran]
        await self._take_results(context, ran, partial(self._add, context, pieces))

    async def run_called(self, context: Context) -> None:
        """Run the calls of the server's own tools that the last run has made, and put each output directly behind its
        call."""
        ran = await self.hosted.run()
        await self._take_results(context, ran, partial(self._put_behind_calls, context, ran))
        self._has_called = True
        self._note_outputs()

    async def _take_results(self, context: Context, ran: list[Ran], rendering: Callable[[], Awaitable[None]]) -> None:
        """What tools have returned is looked at like any input. Raises ``ContentPolicyViolation``."""
        if ran:
            items = [as_input(call) for call, _ in ran]
            await self.screen(context, items)
            await self._beside(context, items, rendering)

    async def _put_behind_calls(self, context: Context, ran: list[Ran]) -> None:
        self._watch.begin("render")
        pieces = [output_text(call.hosted.qualified_name, text) for call, text in ran]
        outputs = await render_pieces(self._plan.route.template, self._port.tenant, pieces, self._services)
        for ids, behind in zip(outputs, self._behind, strict=True):
            context.buffer.extend(ids)
            context.buffer.extend(behind)
        self._behind = []
        self._watch.begin("screen")

    async def show_added(self, context: Context) -> None:
        """Give the engine what was added behind the input, before the first run on it."""
        if self._has_added:
            self._has_added = False
            before = self._shown
            await self._show(context, before=before)

    async def go_on(self, context: Context) -> None:
        """Give the engine the outputs of hosted tools, for one more sampling run."""
        self._watch.begin("extend")
        await self._show(context)

    async def _add(self, context: Context, pieces: list[Pieces]) -> None:
        """Add output items that nobody sampled."""
        self._watch.begin("render")
        for ids in await render_pieces(self._plan.route.template, self._port.tenant, pieces, self._services):
            context.buffer.extend(ids)
        self._has_added = self._has_added or bool(pieces)
        self._note_outputs(sampled=False)

    async def _show(self, context: Context, *, before: int | None = None) -> None:
        """Show the engine what is new and count the input; only what came since ``before`` if it is a number of tokens
        that were counted for the same run."""
        total, reused = await self._window.show(context)
        self._shown = total
        if before is not None:
            total, reused = max(0, total - before), 0
        self._meter.count_input(total, reused, kept=self._window.shown is context)

    async def _compared(self, response_id: str, context: Context) -> Compared | None:
        """What the request wants the new context compared with, before anything is added to it."""
        parent_id = self._request.params.previous_response_id
        lane, tenant, store = self._port.lane, self._port.tenant, self._services.store
        return await find_compared(response_id, parent_id, context, lane, tenant, store)

    def sampler(self, context: Context) -> Sampler:
        """A sampling run on what the context holds now."""
        self._sampled_from = len(context.buffer)
        params = self._request.params
        most = self._request.top_logprobs
        self._sampler = Sampler(
            self._window.sequence,
            self._window.shown.buffer,
            self._parser,
            SamplingParams(
                model=params.model or "",
                temperature=1.0 if params.temperature is None else params.temperature,
                top_p=1.0 if params.top_p is None else params.top_p,
                tool_mode=self._tool_mode,
                tool_names=self.hosted.tool_names,
                hosted_names=self.hosted.offered,
                text_schema=self._request.text_format.schema,
                text_strict=bool(self._request.text_format.strict),
                json_object=self._request.text_format.type == "json_object",
                top_logprobs=most,
            ),
            budget=self._budget(),
            single_call=params.parallel_tool_calls is False,
            steering=self._port.lane.steering,
            should_stop=self._should_stop,
            metrics=self._services.metrics,
            watch=self._watch,
            is_hosted=self.hosted.runs if self.hosted.are_open else None,
            scored=None if most is None else ScoredParser(self._parser, self._plan.route.template.token_bytes, most),
        )
        return self._sampler

    def _should_stop(self) -> bool:
        """Whether steering input waits, and nothing else has to come before it: a call that is open needs its output
        first, and the model goes on to its end."""
        emitter = self.emitter
        return bool(self._port.lane.steering.queued) and not emitter.open_calls and not emitter.hosted_calls

    @property
    def _tool_mode(self) -> str:
        """What ``tool_choice`` demands is done with the first call: no append could end a rollout that must call."""
        mode = self._plan.tool_choice.mode
        return "auto" if mode == "required" and self._has_called else mode

    def hold(self, events: list[Event]) -> None:
        """Keep the events of the last batch for what follows them at once: joined, they cost one write."""
        self._held = events

    def take_held(self) -> list[Event]:
        """The events kept back; they are the caller's to send, at once and before anything else."""
        events, self._held = self._held, []
        if events:
            self._watch.mark_first_token()
        return events

    def sampled(self, sampler: Sampler) -> None:
        """Take a finished run into account."""
        self._sampler = None
        self._window.settle(self._plan.context)
        self.cut = "max_output_tokens" if sampler.cut else "steered" if sampler.is_steered else None
        self._behind = sampler.behind
        if self.cut is not None:  # nothing is run any more
            for ids in self._behind:
                self._plan.context.buffer.extend(ids)
        self._meter.count_output(sampler.tokens, self._parser.reasoning_tokens)

    def resumed(self) -> None:
        """Prototype mode: the outputs are in, and a pause ends."""
        self._pauses += 1
        self._has_called = True
        self._note_outputs()
        self.emitter.resume()

    def finish(self) -> None:
        """Close the response as completed or cut, and bring the context up to date for whoever goes on from it."""
        emitter, context = self.emitter, self._plan.context
        context.verdict = self.verdict.encode()
        self._tell_verdict()
        emitter.response.prompt_cache_diagnostics = self._diagnostics
        if self.cut is not None:
            self._closing = emitter.cut(self.cut, self.usage)
        else:
            self._closing = emitter.complete(self.usage, int(self._services.now()))
        self._note_outputs()
        context.past = Past.after(context.past, self._notes.items)
        context.open_calls |= emitter.async_calls | emitter.open_calls

    def close(self) -> list[Event]:
        """The events that end the finished turn."""
        self._tell_timings()
        return self._closing

    def fail(self, error: ApiError) -> list[Event]:
        """The events that end a turn which ``error`` stopped."""
        self._tell_verdict()
        events = self.emitter.fail(error)
        self._tell_timings()
        return events

    def release(self) -> None:
        """Free what the turn alone has used; its context is the plan's."""
        self._window.release()
        self.hosted.release()

    def state(self) -> ResponseState:
        """The finished turn as a record for the store."""
        response, context = self.emitter.response, self._plan.context
        return ResponseState(
            id=response.id,
            tenant=self._port.tenant,
            created_at=response.created_at,
            previous_response_id=response.previous_response_id,
            response=encode(response),
            items=self._notes.items,
            tools=self._request.tools.told,
            added_tools=self._notes.added_tools,
            body_ids=context.buffer.tobytes(self._body_start),
            fingerprint=context.fingerprint,
            head_key=context.head_key,
            open_calls=list(context.open_calls.values()),
            item_ids=self._notes.item_ids,
            call_ids=self._notes.call_ids,
            verdict=context.verdict,
            listed=self._notes.listed,
            sources=context.sources[self._sources_start :],
        )

    def record(self, error: ApiError | None) -> TurnRecord:
        """The turn for post-inference."""
        if self._sampler is not None:
            self.sampled(self._sampler)  # a run that broke off has cost what it sampled
        response = self.emitter.response
        return TurnRecord(
            response_id=response.id,
            previous_response_id=loggable(response.previous_response_id),
            connection_id=self._port.connection_id,
            transport=self._port.transport,
            tenant=self._port.tenant,
            model=response.model,
            status=LEFT if response.status == "in_progress" else response.status,
            error_code=error.code if error else None,
            usage=self.usage,
            pauses=self._pauses,
            items_in=self._notes.items_in,
            items_out=len(self.emitter.output),
            created_at=response.created_at,
            verdict=self.verdict.encode(),
            kind="rollout" if self._port.lane.suspends else "response",
            unknown=loggable_names(self._request.unknown),
        )

    def _tell_verdict(self) -> None:
        """Snapshots that were sent keep the metadata that they had."""
        response = self.emitter.response
        metadata = with_verdict(response.metadata, self.verdict.encode())
        if metadata is not response.metadata:
            self.emitter.response = msgspec.structs.replace(response, metadata=metadata)

    def _tell_timings(self) -> None:
        """With ``--debug-timings`` the terminal event shows what was measured up to it. The stored response does not:
        the times are this answer's, and nothing that a chain goes on from."""
        if self._services.config.debug_timings:
            response = self.emitter.response
            response.metadata = with_timings(response.metadata, self._watch.read())

    def _budget(self) -> int | None:
        """Tokens that may still be sampled: what ``max_output_tokens`` and the window leave."""
        limits = []
        if self._request.params.max_output_tokens is not None:
            limits.append(self._request.params.max_output_tokens - self.usage.output_tokens)
        if self._window.room is not None:
            limits.append(self._window.room)
        return max(0, min(limits)) if limits else None

    def _note_outputs(self, *, sampled: bool = True) -> None:
        """What was emitted since this was last asked is now part of the past."""
        context, outputs = self._plan.context, self.emitter.output[self._noted :]
        self._noted += len(outputs)
        if outputs and sampled:
            searches = {item_id: search_pieces(search.sealed) for item_id, search in self.emitter.searches.items()}
            ids = context.buffer.since(self._sampled_from)
            remember_sampled(self._plan.route.template, self._port.tenant, outputs, ids, self._services, searches)
        self._notes.take_outputs(context, outputs)
