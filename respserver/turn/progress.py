"""What a running turn has done so far: its response, usage, items and times, and the steps that add to them."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from respserver.engines.base import SamplingParams
from respserver.errors import ApiError
from respserver.protocol.chain import Context, Past, called_by
from respserver.protocol.emitter import Emitter
from respserver.protocol.open_item import ReasoningShown
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.schema.input import check_sizes
from respserver.schema.items import CustomToolCall, FunctionCall, InputItem, tools_of
from respserver.schema.request import CreateRequest
from respserver.schema.response import (
    CacheDiagnostics,
    CacheWriteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Usage,
)
from respserver.state import ResponseState, StoredItem
from respserver.tokens.logprobs import ScoredParser
from respserver.tokens.parse import OutputParser
from respserver.turn.comparison import UNAVAILABLE, Compared, diagnose, find_compared
from respserver.turn.plan import Plan, screen_first, whole_context
from respserver.turn.postinference import TurnRecord
from respserver.turn.record import LEFT, loggable, loggable_names
from respserver.turn.rendering import remember_sampled, render_items
from respserver.turn.response import new_response, with_timings, with_verdict
from respserver.turn.sampler import Sampler
from respserver.turn.services import Port, Services
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.window import Window


class Progress:
    """One admitted turn. ``cut`` is why it is incomplete, once a token limit or steering input has ended it."""

    def __init__(self, request: CreateRequest, plan: Plan, port: Port, services: Services, watch: Stopwatch) -> None:
        self.cut: str | None = None
        self.usage = Usage()
        self._closing: list[Event] = []
        self._held: list[Event] = []
        self.verdict = plan.verdict
        """What the classifiers have said of the chain, this turn included."""
        self._request = request
        self._plan = plan
        self._port = port
        self._services = services
        self._items: list[StoredItem] = []
        self._item_ids: list[str] = []
        self._call_ids: list[str] = []
        self._added_tools: list[bytes] = []
        self._items_in = 0
        self._pauses = 0
        self._body_start = 0
        self._sampled_from = 0
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
            padding=services.padding if _pads(request, services) else None,
        )
        self._parser = OutputParser(plan.route.template.token_bytes)
        self._window = Window(plan.context, request, plan.route, port.tenant, services, watch)

    def bind(self, context: Context) -> None:
        """The turn owns its context now; what comes after this point of the buffer is the turn's own."""
        self._body_start = len(context.buffer)

    async def screen(self, context: Context, items: list[InputItem]) -> None:
        """Prototype mode: an append is looked at like the input of a turn. Raises ``ContentPolicyViolation``, and
        ``InvalidField`` for an image or a file that is too large."""
        self._watch.begin("screen")
        services = self._services
        check_sizes(items, services.config.limits.media_bytes)
        self.verdict = await screen_first(services, self._port.tenant, context, self._items, items, self.verdict)

    async def extend(self, context: Context, items: list[InputItem]) -> None:
        """Render new items into the buffer and give the engine what it has not had, while the classifiers that may
        run beside that do. Raises ``ApiError``."""
        everything = whole_context(self._services, self._port.tenant, context, self._items, items)
        rendering = partial(self._extend, context, items)
        self.verdict = await self._services.screening.beside(rendering, items, everything, self.verdict)
        self.verdict.raise_if_blocked()

    async def _extend(self, context: Context, items: list[InputItem]) -> None:
        self._note_inputs(context, items)
        wanted = self._request.compares_with if not self._pauses else None  # a turn's first input is compared
        compared = await self._compared(wanted, context) if wanted is not None else None
        context.buffer.extend(await render_items(self._plan.route.template, self._port.tenant, items, self._services))
        self._count_input(*await self._window.show(context), kept=self._window.shown is context)
        if wanted is not None:
            is_whole = self._window.shown is context
            self._diagnostics = diagnose(compared, context, self._request) if is_whole else UNAVAILABLE
        context.model, context.tools_digest = self._request.params.model or "", self._request.tools.digest
        self._watch.begin("screen")  # sampling may still have to wait for a classifier

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
                tool_names=self._plan.tool_choice.names,
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
            scored=None if most is None else ScoredParser(self._parser, self._plan.route.template.token_bytes, most),
        )
        return self._sampler

    def _should_stop(self) -> bool:
        """Whether steering input waits, and nothing else has to come before it: a call that is open needs its output
        first, and the model goes on to its end."""
        return bool(self._port.lane.steering.queued) and not self.emitter.open_calls

    @property
    def _tool_mode(self) -> str:
        """What ``tool_choice`` demands is done with the first call: no append could end a rollout that must call."""
        mode = self._plan.tool_choice.mode
        return "auto" if mode == "required" and self._pauses else mode

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
        usage = self.usage
        output_tokens = usage.output_tokens + sampler.tokens
        self.usage = Usage(
            input_tokens=usage.input_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens=output_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self._parser.reasoning_tokens),
            total_tokens=usage.input_tokens + output_tokens,
        )

    def resumed(self) -> None:
        """Prototype mode: the outputs are in, and a pause ends."""
        self._pauses += 1
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
        context.past = Past.after(context.past, self._items)
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

    def state(self) -> ResponseState:
        """The finished turn as a record for the store."""
        response, context = self.emitter.response, self._plan.context
        return ResponseState(
            id=response.id,
            tenant=self._port.tenant,
            created_at=response.created_at,
            previous_response_id=response.previous_response_id,
            response=encode(response),
            items=self._items,
            tools=self._request.tools.raw,
            added_tools=self._added_tools,
            body_ids=context.buffer.tobytes(self._body_start),
            fingerprint=context.fingerprint,
            head_key=context.head_key,
            open_calls=list(context.open_calls.values()),
            item_ids=self._item_ids,
            call_ids=self._call_ids,
            verdict=context.verdict,
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
            items_in=self._items_in,
            items_out=len(self.emitter.output),
            created_at=response.created_at,
            verdict=self.verdict.encode(),
            kind="rollout" if self._port.lane.suspends else "response",
            unknown=loggable_names(self._request.unknown),
        )

    def _count_input(self, total: int, reused: int, *, kept: bool) -> None:
        """Add one sampling segment's input: what the engine sees, with what of it it still had. A cut view is not
        ``kept``."""
        usage, details = self.usage, self.usage.input_tokens_details
        keeps = kept and (self._port.keeps_context or (self._request.stored and self._services.kept.is_on))
        written = total - reused if keeps else 0
        self.usage = msgspec.structs.replace(
            usage,
            input_tokens=usage.input_tokens + total,
            input_tokens_details=InputTokensDetails(
                cached_tokens=details.cached_tokens + reused,
                cache_write_tokens=details.cache_write_tokens + written,
                cache_write_tokens_details=_by_lifetime(self._request, details.cache_write_tokens + written),
            ),
            total_tokens=usage.total_tokens + total,
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

    def _note_inputs(self, context: Context, items: list[InputItem]) -> None:
        self._items_in += len(items)
        for item in items:
            self._items.append(StoredItem("input", item.raw))
            if item.id:
                self._item_ids.append(item.id)
                context.item_ids.add(item.id)
            if (call_id := called_by(item)) is not None:
                self._call_ids.append(call_id)
                context.call_ids.add(call_id)
            if (tools := tools_of(item)) is not None:
                self._added_tools.append(tools)

    def _note_outputs(self) -> None:
        """What was emitted since the last pause is now part of the past."""
        context, outputs = self._plan.context, self.emitter.since_pause
        if outputs:
            sampled = context.buffer.since(self._sampled_from)
            remember_sampled(self._plan.route.template, self._port.tenant, outputs, sampled, self._services)
        for item in outputs:
            self._items.append(StoredItem("output", encode(item)))
            self._item_ids.append(item.id)
            context.item_ids.add(item.id)
            if isinstance(item, FunctionCall | CustomToolCall):
                self._call_ids.append(item.call_id)
                context.call_ids.add(item.call_id)


def _by_lifetime(request: CreateRequest, written: int) -> CacheWriteDetails | UnsetType:
    options = request.params.prompt_cache_options
    if options is None:
        return UNSET
    is_long = options.ttl == "12h"
    return CacheWriteDetails(ttl_12h_tokens=written if is_long else 0, ttl_30m_tokens=0 if is_long else written)


def _pads(request: CreateRequest, services: Services) -> bool:
    """Whether delta events are padded: the request's word, else the server's option (design.md section 8)."""
    options = request.params.stream_options
    if options is not None and options.include_obfuscation is not None:
        return options.include_obfuscation
    return services.config.obfuscation
