"""A transcript's end that is made of the rules alone: connection, lanes, pauses, emitters, template and parser, with
the steps of a script for a model. No tasks, no clock, no socket: time is a number, and all happens when it is said.
"""

from __future__ import annotations

from respserver.config import Mode
from respserver.engines.base import SamplingParams
from respserver.engines.sim.context import Context as ModelContext
from respserver.engines.sim.plan import Plan, Planner, ScriptReader
from respserver.engines.sim.script import Script
from respserver.errors import ApiError, ModelFault, PreviousResponseNotFound
from respserver.protocol.chain import Context, Latest, Pause
from respserver.protocol.commands import StartTurn
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import Lane
from respserver.protocol.open_item import ReasoningShown
from respserver.schema.items import InputItem
from respserver.schema.response import Usage
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.parse import OutputParser
from respserver.tokens.roles import role_table
from respserver.tokens.special import Special
from respserver.turn.response import new_response
from tests.support.live import Frame
from tests.support.pure import NOW, read
from tests.support.shell import Play, Shell
from tests.support.spy import TEMPLATE, in_words
from tests.support.transcript import Transcript

_PLANNER = Planner(TEMPLATE)
_ROLES = role_table(TEMPLATE.tokenise)


class PureEnd(Shell):
    """The client's end of a ``Shell`` whose model plays the transcript's script."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(Mode.PROTOTYPE, max_waiting=transcript.limits.get("queued_creates", 64))
        self.contexts: list[str] = []
        self.stored: dict[str, Context] = {}
        self._script = transcript.script
        self._heard = 0

    @property
    def script(self) -> Script:
        return self._script

    def make_play(self, lane: Lane) -> Play:
        return ScriptedPlay(self, lane)

    async def say(self, text: str) -> None:
        self.message(text)
        self._run()

    async def hear(self) -> Frame | None:
        if self._heard == len(self.frames):
            return None
        self._heard += 1
        return self.frames[self._heard - 1]

    async def wait_for_model(self, count: int) -> None:
        """It has been asked whatever it is asked."""

    async def act(self, what: str) -> None:
        word, _, seconds = what.partition(" ")
        assert word == "pass", f"the rules know no such thing: {what}"
        for play in self.busy:
            assert isinstance(play, ScriptedPlay)
            play.pass_time(float(seconds))
        self._run()

    def _run(self) -> None:
        """Let every lane go as far as it gets."""
        while any(isinstance(play, ScriptedPlay) and play.go_on() for play in self.busy):
            pass


class ScriptedPlay(Play):
    """One lane's turns, spoken by a script, with the buffer that a real one has."""

    def __init__(self, shell: PureEnd, lane: Lane) -> None:
        super().__init__(shell, lane)
        self._end_of_client = shell
        self._said: _Said | None = None
        self._request = read()

    def go_on(self) -> bool:
        """Begin what waits, or say what is due; False if nothing of the kind can be done."""
        if self._emitter is None:
            self._start()
            return True
        if self._said is None or self._said.silence > 0:
            return False
        said, self._said = self._said, None
        self._speak(self._emitter, said)
        return True

    def pass_time(self, seconds: float) -> None:
        """A silent model is nearer to its next word."""
        if self._said is not None:
            self._said.silence -= seconds

    @property
    def _usage(self) -> Usage:
        read, said = self._input_tokens, self._output_tokens
        return Usage(input_tokens=read, output_tokens=said, total_tokens=read + said)

    def _find_parent(self, command: StartTurn) -> Context:
        self._request = command.request
        self._input_tokens = self._output_tokens = 0
        self._parser = OutputParser(TEMPLATE.token_bytes)
        if command.hydrate is not None:
            if command.hydrate not in self._end_of_client.stored:
                raise PreviousResponseNotFound(command.hydrate)
            return self._end_of_client.stored[command.hydrate].fork()
        fresh = Context(buffer=TokenBuffer(), fingerprint=TEMPLATE.fingerprint)
        return command.parent.context.fork() if command.parent else fresh

    def _make_emitter(self, command: StartTurn) -> Emitter:
        shell, request = self._end_of_client, command.request
        begun = new_response(request, shell.new_id("resp"), NOW)
        offered = request.tools.by_name | self._context.added_tools
        shown = ReasoningShown(summary=begun.reasoning.shows_summary, seal="".join)
        return Emitter(begun, shell.new_id, offered=offered, reasoning=shown)

    def _take_in(self, items: list[InputItem]) -> None:
        """Render, and ask the model."""
        assert self._emitter is not None
        request, buffer = self._request, self._context.buffer
        for item in items:
            buffer.extend(TEMPLATE.tokenise(TEMPLATE.item(item)))
        if request.warm_up:
            self._stop(self._emitter, is_cut=False)
            return
        head = TEMPLATE.tokenise(TEMPLATE.head(request.params.instructions, request.tools.raw))
        ids = [*head, *buffer.since(0)]
        self._end_of_client.contexts.append(in_words(ids))
        buffer.unseen()  # the model has them now
        self._input_tokens += len(ids)
        model = ModelContext(TEMPLATE, _ROLES)
        model.extend(ids)
        try:
            params = SamplingParams(model=request.params.model or "")
            plan = _PLANNER.plan(model, ScriptReader(self._end_of_client.script), params, False)
        except ModelFault as error:
            self._fail(self._emitter, error)
            return
        self._said = _Said(plan)

    def _speak(self, emitter: Emitter, said: _Said) -> None:
        """Say all up to the next silence, the fault, the limit, or the end."""
        ids = said.take()
        most = self._request.params.max_output_tokens
        room = len(ids) if most is None else min(len(ids), most - self._output_tokens)
        taken = self._one_call(ids[:room]) if self._request.params.parallel_tool_calls is False else room
        self._output_tokens += taken
        self._context.buffer.extend_sampled(ids[:taken])
        self._feed(emitter, self._parser.feed(ids[:taken]))
        if taken < len(ids):
            self._feed(emitter, self._parser.finish())
            if self._context.buffer.last != Special.END:
                self._context.buffer.extend([Special.END])
            self._stop(emitter, is_cut=taken == room)
        elif said.fault is not None:
            self._fail(emitter, said.fault)
        elif said.is_over:
            self._stop(emitter, is_cut=False)
        else:
            self._said = said

    def _one_call(self, ids: list[int]) -> int:
        """How many of the ids make the first call whole, or all of them if there is none."""
        starts = [at for at, token in enumerate(ids) if token in (Special.CALL, Special.CUSTOM)]
        return ids.index(Special.END, starts[0]) + 1 if starts else len(ids)

    def _stop(self, emitter: Emitter, *, is_cut: bool) -> None:
        """The model is through, or was cut: the turn pauses or ends."""
        if emitter.open_calls and not is_cut:
            self.lane.pause = Pause(
                response_id=emitter.response.id,
                open_calls=emitter.open_calls,
                emitted=emitter.since_pause,
                item_ids=self._context.item_ids,
            )
            self._send([emitter.pause(self._usage)])
            return
        limit = "max_output_tokens"
        ends = emitter.cut(limit, self._usage) if is_cut else emitter.complete(self._usage, NOW)
        context = self._context
        context.open_calls = context.open_calls | emitter.async_calls | emitter.open_calls
        context.item_ids |= set(emitter.item_ids)
        context.call_ids |= set(emitter.call_ids)
        latest = Latest(response_id=emitter.response.id, context=context, stored=self._request.stored)
        if latest.stored:
            self._end_of_client.stored[latest.response_id] = context.fork()
        self.lane.publish(latest)
        self._send(ends)
        self._end()

    def _fail(self, emitter: Emitter, error: ApiError) -> None:
        self._said = None
        self.lane.evict()
        self._send(emitter.fail(error))
        self._end()


class _Said:
    """What the model is about to say, and how far it is. ``silence`` are the seconds until it goes on."""

    def __init__(self, plan: Plan) -> None:
        self._ids = plan.ids
        self._delays = list(plan.delays)
        self._fault = plan.fault
        self._at = 0
        self.silence = 0.0
        self._be_silent()

    @property
    def is_over(self) -> bool:
        return self._at == len(self._ids) and not self._delays

    @property
    def fault(self) -> ModelFault | None:
        """What the model breaks with here."""
        if self._fault is None or self._at < self._fault[0] or self._delays:
            return None
        return ModelFault(self._fault[1].message, self._fault[1].code)

    def take(self) -> list[int]:
        """The ids up to the next silence, the fault, or the end."""
        stops = [len(self._ids), *(at for at, _ in self._delays[:1]), *([self._fault[0]] if self._fault else [])]
        start, self._at = self._at, min(stops)
        self._be_silent()
        return self._ids[start : self._at]

    def _be_silent(self) -> None:
        while self._delays and self._delays[0][0] <= self._at:
            self.silence += self._delays.pop(0)[1]
