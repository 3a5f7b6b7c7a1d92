"""The story of a turn, both modes (design.md sections 2 and 7).

    admit   route, bind the parent, pair calls and outputs      up to here a refusal is one error, nothing was touched
    play    created, in_progress → render and tokenise → sample → (prototype) pause, wait, go on
    end     state saved, connection cache changed, terminal written: one short shielded scope

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
from respserver.protocol.commands import StartTurn
from respserver.schema.items import InputItem
from respserver.schema.response import Response
from respserver.turn.interrupt import Interrupt
from respserver.turn.plan import Plan, make_plan
from respserver.turn.postinference import TurnRecord
from respserver.turn.progress import Progress
from respserver.turn.record import refusal_record
from respserver.turn.sampler import Sampler
from respserver.turn.services import Port, Services

log = get_logger("respserver.turn")


class TurnResult(msgspec.Struct, kw_only=True):
    """How a turn ended."""

    response: Response | None = None
    """The terminal snapshot; None if the turn was refused before ``response.created``."""
    error: ApiError | None = None


async def run_turn(start: StartTurn, port: Port, services: Services, interrupt: Interrupt) -> TurnResult:
    """Run one turn to its end. Only ``trio.Cancelled`` and ``SocketClosed`` (the client is gone) come out of here.

    A refused turn has sent nothing and the caller reports its error; every other one has sent exactly one terminal.
    However it ends, its engine run is freed or handed to the lane, and post-inference hears of it once.
    """
    turn = _Turn(start, port, services)
    try:
        with interrupt.scope:
            await turn.attempt()
        if interrupt.scope.cancelled_caught:
            turn.error = interrupt.error
        return await turn.end()
    finally:
        await turn.release()
        services.post.submit(turn.record())


class _Turn:
    def __init__(self, start: StartTurn, port: Port, services: Services) -> None:
        self.start = start
        self.port = port
        self.services = services
        self.plan: Plan | None = None
        self.progress: Progress | None = None
        self.error: ApiError | None = None
        """What stopped the turn, if anything."""

    async def attempt(self) -> None:
        """Admit and play."""
        try:
            self.plan = plan = await make_plan(self.start, self.port, self.services)
            self.progress = progress = Progress(self.start.request, plan, self.port, self.services)
            await self._play(plan, progress)
        except ApiError as error:
            self.error = error
        except SocketClosed:
            raise
        except Exception:
            log.exception("turn_fault", connection_id=self.port.connection_id)
            self.error = ServerError()

    async def _play(self, plan: Plan, progress: Progress) -> None:
        request = self.start.request
        self.services.metrics.turns += 1
        self.port.send(progress.emitter.created() if request.warm_up else progress.emitter.begin())
        context = await plan.take_context(self.port.lane)
        progress.bind(context)
        new_items: list[InputItem] = plan.items
        while True:
            await progress.extend(context, new_items)
            if request.warm_up:
                return
            await self._sample(progress.sampler(context), progress)
            if progress.cut or not progress.emitter.open_calls or not self.port.lane.suspends:
                return
            new_items = await self._suspend(progress, context)
            await progress.screen(context, new_items)

    async def _sample(self, sampler: Sampler, progress: Progress) -> None:
        while (deltas := await sampler.next()) is not None:
            events = [event for delta in deltas for event in progress.emitter.feed(delta)]
            if events:
                progress.mark_first_token()
            if sampler.has_ended:
                progress.hold(events)
            elif events:
                self.port.send(events)
            await self.port.drain()
        progress.sampled(sampler)

    async def _suspend(self, progress: Progress, context: Context) -> list[InputItem]:
        """Prototype mode: stand here until the client has sent its tools' outputs."""
        emitter = progress.emitter
        self.services.metrics.pauses += 1
        pause = Pause(
            response_id=emitter.response.id,
            open_calls=emitter.open_calls,
            emitted=emitter.since_pause,
            item_ids=context.item_ids,
        )
        self.port.send(progress.take_held())
        items = await self.port.suspend(emitter.pause(progress.usage), pause)
        progress.resumed()
        return items

    async def end(self) -> TurnResult:
        """Save, change the cache, write the terminal; or report the refusal."""
        if self.progress is None or self.plan is None:
            self.services.metrics.refused += 1
            return TurnResult(error=self.error or ServerError())
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self.services.config.limits.end_seconds
            if self.error is None:
                await self._save(self.progress)
        if scope.cancelled_caught:
            self.error = ServerError("The response could not be saved in time.")
        self._write_end(self.progress, self.plan)
        return TurnResult(response=self.progress.emitter.response, error=self.error)

    async def _save(self, progress: Progress) -> None:
        progress.finish()
        if not self.start.request.stored:
            return
        self.port.send(progress.take_held())  # they do not wait for the store
        try:
            await self.services.store.save(progress.state())
        except Exception:
            log.exception("save_failed", response_id=progress.emitter.response.id)
            self.error = ServerError("The response could not be saved.")

    def _write_end(self, progress: Progress, plan: Plan) -> None:
        """Chain changes come before the terminal event, so that a client that reacts at once finds them made."""
        lane = self.port.lane
        if self.error is not None:
            self.services.metrics.failed += 1
            lane.evict()
            self.port.send_failure([*progress.take_held(), *progress.emitter.fail(self.error)], self.error)
        else:
            lane.publish(Latest(response_id=progress.emitter.response.id, context=plan.hand_over()))
            self.port.send([*progress.take_held(), *progress.closing])

    async def release(self) -> None:
        """Free the engine's run unless the lane has it now."""
        if self.plan is not None:
            await self.plan.release()

    def record(self) -> TurnRecord:
        """The turn for post-inference."""
        if self.progress is not None:
            return self.progress.record(self.error)
        return refusal_record(self.start.request, self.port, self.error)
