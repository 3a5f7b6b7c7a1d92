"""The story of a turn, both modes (design.md sections 2 and 7).

    wait    for a slot of the connection's and of the process's (``slots.py``)
    admit   bind the parent, route, pair calls and outputs      up to here a refusal is one error, nothing was touched
    play    created, in_progress → render and tokenise → sample → (prototype) pause, wait, go on
    end     state saved, in a short shielded scope; then, without a wait, connection cache changed, terminal written

Prototype mode waits inside ``_play``: the suspended loop is the ``await`` on ``port.suspend``. Shipped mode leaves the
loop, and what it would have kept hangs on the lane's latest response.
"""

from __future__ import annotations

import msgspec
import trio

from respserver.errors import ApiError, ServerError
from respserver.logger import get_logger
from respserver.message_socket import SocketClosed
from respserver.protocol.chain import Context, Latest, Pause
from respserver.protocol.commands import Create, StartTurn
from respserver.schema.events import RequiredInput
from respserver.schema.items import InputItem
from respserver.schema.response import Response, Usage
from respserver.turn.interrupt import Interrupt
from respserver.turn.plan import Plan, make_plan
from respserver.turn.postinference import TurnRecord
from respserver.turn.progress import Progress
from respserver.turn.record import refusal_record
from respserver.turn.sampler import Sampler
from respserver.turn.services import Port, Services
from respserver.turn.stopwatch import Stopwatch

log = get_logger("respserver.turn")


class TurnResult(msgspec.Struct, kw_only=True):
    """How a turn ended."""

    response: Response | None = None
    """The terminal snapshot; None if the turn was refused before ``response.created``."""
    error: ApiError | None = None
    required_input: list[RequiredInput] = []
    """The outputs that the client owes, if steering input waits for them."""


async def run_turn(
    create: Create, port: Port, services: Services, interrupt: Interrupt, watch: Stopwatch
) -> TurnResult:
    """Run one turn to its end; ``create`` is one that could be read.

    Only ``trio.Cancelled`` and ``SocketClosed`` (the client is gone) come out of here.

    A refused turn has sent nothing and the caller reports its error; every other one has sent exactly one terminal.
    However it ends, its engine run is freed or handed to the lane, and post-inference hears of it once. ``watch`` runs
    since the request came.
    """
    turn = _Turn(create, port, services, watch)
    try:
        with interrupt.scope:
            await turn.attempt(interrupt)
        if interrupt.scope.cancelled_caught:
            turn.error = interrupt.error
        return await turn.end()
    finally:
        try:
            # Nothing is awaited since the terminal event: who has seen that finds the turn counted.
            record = turn.record()
            turn.charge(record.usage)
            services.post.submit(record, watch)
        finally:
            turn.release()


class _Turn:
    def __init__(self, create: Create, port: Port, services: Services, watch: Stopwatch) -> None:
        assert create.request is not None  # the callers refuse what could not be read
        self.create = create
        self.request = create.request
        self.port = port
        self.services = services
        self.watch = watch
        self.slot = services.slots.slot(port.tenant, port.connection_id, port.own_slots)
        self.plan: Plan | None = None
        self.progress: Progress | None = None
        self.error: ApiError | None = None
        """What stopped the turn, if anything."""
        self._charged = 0

    async def attempt(self, interrupt: Interrupt) -> None:
        """Wait for a slot, admit and play."""
        try:
            if not self.create.steers:  # nobody asks for a successor
                self.services.rates.take_request(self.port.tenant, self.request.params.model or "")
            interrupt.is_waiting = True
            await (self.slot.take_again() if self.create.steers else self.slot.take())  # a successor goes on
            interrupt.is_waiting = False
            self.watch.begin("bind")
            start = self.port.lane.begin(self.create)  # binds the parent: a create that waits has none yet
            assert isinstance(start, StartTurn)
            self.plan = plan = await make_plan(start, self.port, self.services, self.watch)
            self.progress = progress = Progress(self.request, plan, self.port, self.services, self.watch)
            await self._play(plan, progress)
        except ApiError as error:
            self.error = error
        except SocketClosed:
            raise
        except Exception:
            log.exception("turn_fault", connection_id=self.port.connection_id)
            self.error = ServerError()

    async def _play(self, plan: Plan, progress: Progress) -> None:
        request = self.request
        self.services.metrics.turns += 1
        self.services.metrics.steers += len(plan.steers)
        takes_steering = plan.route.steering and not request.warm_up and not self.port.lane.suspends
        self.port.lane.steering.open(progress.emitter.response.id, is_supported=takes_steering, commits=plan.steers)
        self.watch.begin("write")
        self.port.send(progress.emitter.created() if request.warm_up else progress.emitter.begin())
        await self.port.drain()  # they are on their way before anything is rendered (design.md section 4)
        self.watch.begin("render")  # another route's tokenizer may have to render the past again
        context = await plan.take_context(self.port.lane)
        progress.bind(context)
        await progress.extend(context, plan.items)
        if request.warm_up:
            return
        await progress.list_tools(context)
        await progress.run_approved(context, plan.items)
        while True:
            await progress.show_added(context)
            await self._sample(progress.sampler(context), progress)
            if progress.cut is not None:
                return
            has_run = await self._run_hosted(progress, context)
            if progress.emitter.open_calls:
                if not self.port.lane.suspends:
                    return
                await self._pause(plan, progress, context)
            elif has_run and not progress.hosted.is_exhausted:
                await progress.go_on(context)
            else:
                return

    async def _run_hosted(self, progress: Progress, context: Context) -> bool:
        """Run what the model has called of the server's own tools; False if that is nothing."""
        if not progress.emitter.hosted_calls:
            return False
        self.port.send(progress.take_held())  # they do not wait for the tools
        self.charge(progress.usage)
        await progress.run_called(context)
        return True

    async def _sample(self, sampler: Sampler, progress: Progress) -> None:
        feed = progress.emitter.feed
        while (deltas := await sampler.next()) is not None:
            events = [event for delta in deltas for event in feed(delta)]
            self.watch.begin("write")
            if sampler.has_ended:
                progress.hold(events)
            elif events:
                self.watch.mark_first_token()
                self.port.send(events)
            await self.port.drain()
        progress.sampled(sampler)

    async def _pause(self, plan: Plan, progress: Progress, context: Context) -> None:
        """Prototype mode: stand here until the client's outputs are in, and take them in."""
        # The buffer has them, and the turn as JSON: that is enough while it stands.
        plan.items, self.request.items = [], []
        items = await self._suspend(progress, context)
        await progress.screen(context, items)
        self.watch.begin("render")
        await progress.extend(context, items)
        await progress.run_approved(context, items)

    async def _suspend(self, progress: Progress, context: Context) -> list[InputItem]:
        """Prototype mode: stand here until the client has sent its tools' outputs."""
        emitter = progress.emitter
        pause = Pause(
            response_id=emitter.response.id,
            open_calls=emitter.open_calls,
            emitted=emitter.since_pause,
            item_ids=context.item_ids,
        )
        self.port.send(progress.take_held())
        self.charge(progress.usage)
        self.slot.give_back()
        items = await self.port.suspend(emitter.pause(progress.usage), pause, self.watch)
        await self.slot.take_again()  # in the queue, as ``watch`` knows since the outputs came
        self.watch.begin("bind")
        progress.resumed()
        return items

    async def end(self) -> TurnResult:
        """Save, change the cache, write the terminal; or report the refusal."""
        if self.progress is None or self.plan is None:
            self.services.metrics.refused += 1
            return TurnResult(error=self.error or ServerError())
        if self.error is None:
            self.watch.begin("emit")
            self.progress.finish()
            if self.request.stored:
                await self._save(self.progress)
        self._write_end(self.progress, self.plan)
        emitter, is_steered = self.progress.emitter, bool(self.port.lane.steering.queued)
        required_input = emitter.required_input if is_steered else []  # nobody else asks
        return TurnResult(response=emitter.response, error=self.error, required_input=required_input)

    async def _save(self, progress: Progress) -> None:
        self.watch.begin("write")
        self.port.send(progress.take_held())  # they do not wait for the store
        self.watch.begin("save")
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self.services.config.limits.end_seconds
            try:
                await self.services.store.save(progress.state())
            except Exception:
                log.exception("save_failed", response_id=progress.emitter.response.id)
                self.error = ServerError("The response could not be saved.")
        if scope.cancelled_caught:
            self.error = ServerError("The response could not be saved in time.")

    def _write_end(self, progress: Progress, plan: Plan) -> None:
        """Chain changes come before the terminal event, so that a client that reacts at once finds them made."""
        lane = self.port.lane
        self.watch.begin("write")
        if self.error is not None:
            self.services.metrics.failed += 1
            lane.evict()
            self.port.send_failure([*progress.take_held(), *progress.fail(self.error)], self.error)
        else:
            response_id, stored = progress.emitter.response.id, self.request.stored
            lane.publish(Latest(response_id=response_id, context=plan.hand_over(), stored=stored))
            self.port.send([*progress.take_held(), *progress.close()])

    def charge(self, usage: Usage) -> None:
        """Count what the turn has used by now against its tenant's rate; each token once."""
        self.services.rates.charge(self.port.tenant, usage.total_tokens - self._charged)
        self._charged = usage.total_tokens

    def release(self) -> None:
        """Free the slot, and the engine's run unless the lane has it now."""
        self.slot.give_back()
        if self.progress is not None:
            self.progress.release()
        if self.plan is not None:
            self.plan.release()

    def record(self) -> TurnRecord:
        """The turn for post-inference."""
        if self.progress is not None:
            return self.progress.record(self.error)
        return refusal_record(self.request, self.port, self.error)
