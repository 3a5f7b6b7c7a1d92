"""Many turns on many lanes, in any order that hypothesis or seeded dice think of, against a model of the rules.

Nothing is left to chance but the plan: each turn's model speaks when it is told to, and after each operation the server
is let come to rest. Then every lane must have shown exactly what the model of the rules says, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.config import Config, Limits, Mode
from respserver.services import build_services
from tests.support.lane_model import (
    CUT,
    FREE,
    HELD,
    INVALID,
    KINDS,
    NOWHERE,
    UNPAIRED,
    WARM,
    LaneModel,
    Mark,
    Turn,
)
from tests.support.live import TERMINALS, Frame, calls_of, tool
from tests.support.puppet import CHATTER, Puppet
from tests.support.replay import Replay
from tests.support.talk import Talk, settled

TOOLS = [tool("look")]
FIELDS: dict[str, dict[str, Any]] = {
    INVALID: {"input": 42},
    UNPAIRED: {"input": [{"type": "function_call_output", "call_id": "call_0", "output": ""}]},
    CUT: {"max_output_tokens": CHATTER},
    WARM: {"generate": False},
}
"""How a create is made to be of its kind."""
SMALL = {
    "connection_lanes": 4,
    "connection_active_turns": 3,
    "queued_creates": 4,
    "connection_suspended_rollouts": 2,
}
"""Bounds that a short plan meets."""


class Op(msgspec.Struct, frozen=True):
    """One operation: ``create``, ``say``, ``end``, ``break``, ``call``, ``append`` or ``leave``. ``pick`` chooses among
    the running or the suspended turns, or the parent: the lane's own newest response (-1), none (-2), one that does not
    exist (-3), else one of those that are known, the newest first."""

    do: str
    pick: int = -2
    lane: int = 0
    kind: str = HELD
    stored: bool = False


class Player:
    """Plays operations to the server and to the model of the rules, and compares what comes of them."""

    def __init__(self, nursery: trio.Nursery, mode: Mode, limits: Limits) -> None:
        self._nursery = nursery
        self._limits = limits
        self.puppet = Puppet()
        self.services = build_services(Config(mode=mode, limits=limits), engine=self.puppet)
        self.model = LaneModel(
            max_lanes=limits.connection_lanes,
            max_active=limits.connection_active_turns,
            max_waiting=limits.queued_creates,
            max_suspended=limits.connection_suspended_rollouts,
        )
        self.seen: set[str] = set()
        """The kinds of marks that came, to tell whether a plan was worth playing."""
        self._talk = Talk(nursery, self.services)
        self._talks = [self._talk]
        self._ids: dict[int, str] = {NOWHERE: "resp_nowhere"}
        self._newest: dict[str | None, int] = {}
        self._turns = 0
        self._replays: dict[str | None, tuple[int, Replay]] = {}
        self._calls: dict[int, str] = {}
        self._mode = mode

    async def play(self, op: Op) -> None:
        """One operation, all that follows from it, and the comparison."""
        if op.do == "create":
            self._create(op)
        elif op.do == "leave":
            await self._leave()
        elif op.do == "append":
            self._append(op.pick)
        elif self.model.running:
            turn = self.model.running[op.pick % len(self.model.running)]
            self.puppet.tell(turn.number, op.do)
            {
                "say": self.model.say,
                "end": self.model.end,
                "break": self.model.break_off,
                "call": self.model.call,
            }[op.do](turn)
        await settled()
        shown = [await self._talk.socket.hear() for _ in range(self._talk.socket.unheard)]
        self._compare(shown)

    async def finish(self) -> None:
        """End every turn in order, leave, and look for what is left."""
        while self.model.running or self.model.suspended:
            await self.play(Op("end" if self.model.running else "append", 0))
        assert all(not lane.line for lane in self.model.lanes.values())
        await self._leave()
        await settled()
        services, model = self.services, self.model
        services.kept.clear()
        await settled()
        assert self.puppet.runs_open == 0
        assert (services.slots.active, services.slots.waiting, services.suspensions.count) == (0, 0, 0)
        counted = services.metrics.turns, services.metrics.failed, services.metrics.refused
        assert counted == (model.started, model.failed, model.refused)
        self._talk.socket.leave()
        await self._talk.over.wait()
        assert len(self._nursery.child_tasks) == 1, "more than post-inference is left"

    def _create(self, op: Op) -> None:
        self._turns += 1
        lane = None if op.lane == 0 else f"lane-{op.lane}"
        turn = Turn(self._turns, lane, op.kind, self._parent(op, lane), op.stored)
        self.puppet.kinds[turn.number] = turn.kind
        fields: dict[str, Any] = {"model": str(turn.number), "input": f"q{turn.number}", "store": turn.stored}
        if self._mode is Mode.PROTOTYPE:
            fields["tools"] = TOOLS
        if lane is not None:
            fields["stream_id"] = lane
        if turn.parent is not None:
            fields["previous_response_id"] = self._ids[turn.parent]
        fields |= FIELDS.get(turn.kind, {})
        self._talk.create(**fields)
        self.model.create(turn)

    def _append(self, pick: int) -> None:
        if self.model.suspended:
            turn = self.model.suspended[pick % len(self.model.suspended)]
            answer = {"type": "function_call_output", "call_id": self._calls[turn.number], "output": "ok"}
            named = {} if turn.lane is None else {"stream_id": turn.lane}
            self._talk.socket.say({"type": "response.append", "input": [answer], **named})
            self.model.append(turn)

    def _parent(self, op: Op, lane: str | None) -> int | None:
        """The parent that an operation means: a turn whose id the client knows."""
        known = sorted(self._ids)[:0:-1]
        if op.pick == -1:
            return self._newest.get(lane)
        if op.pick == -3:
            return NOWHERE
        return known[op.pick % len(known)] if op.pick >= 0 and known else None

    async def _leave(self) -> None:
        """The client goes without a word and comes back on another socket."""
        self._talk.socket.leave()
        await self._talk.over.wait()
        self.model.leave()
        self._replays.clear()
        self._talk = Talk(self._nursery, self.services, beside=self._talks[0])

    def _compare(self, frames: list[Frame]) -> None:
        shown: dict[str | None, list[Mark]] = {}
        for frame in frames:
            assert frame.get("stream_id", "") is not None
            lane = frame.get("stream_id")
            mark = self._mark(lane, frame)
            marks = shown.setdefault(lane, [])
            if mark is not None and (mark[0] != "delta" or marks[-1:] != [mark]):  # the deltas of one word are one mark
                marks.append(mark)
                self.seen.add(str(mark[1]) if mark[0] == "error" else mark[0])
        expected, self.model.marks = self.model.marks, {}
        assert shown == expected
        for turn in self.model.running:
            assert self.puppet.heard[turn.number] == turn.context

    def _mark(self, lane: str | None, frame: Frame) -> Mark | None:
        """What a frame tells. Its number, and what it adds to its response, must fit what came before on its lane."""
        if frame["type"] == "error":
            return "error", frame["error"]["code"]
        if frame["type"] == "response.created":
            assert lane not in self._replays, "a response began inside another"
            number = int(frame["response"]["model"])
            self._replays[lane] = number, Replay()
            self._ids[number], self._newest[lane] = frame["response"]["id"], number
            running = len(self._replays) - len(self.model.suspended)
            assert running <= self._limits.connection_active_turns
        number, replay = self._replays[lane]
        replay.feed(frame)
        if frame["type"] in TERMINALS:
            del self._replays[lane]
        if frame["type"] == "response.done":
            self._calls[number] = calls_of(frame["response"])[-1]["call_id"]
        moment = frame["type"].rpartition(".")[2]
        is_told = frame["type"] in TOLD
        return (moment, number) if is_told else None


def run(plan: list[Op], mode: Mode = Mode.SHIPPED, **limits: int) -> set[str]:
    """Play a plan to its end. Which kinds of marks there were."""

    async def main() -> set[str]:
        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                player = Player(nursery, mode, Limits(**limits))
                for op in plan:
                    await player.play(op)
                await player.finish()
                nursery.cancel_scope.cancel()
        return player.seen

    return trio.run(main)


parents = st.sampled_from([-1, -1, -1, -2, -3, 0, 0, 1, 1, 2, 3, 5, 8])
kinds = st.sampled_from([HELD, HELD, HELD, *KINDS])
creates = st.builds(Op, st.just("create"), parents, st.integers(0, 5), kinds, st.booleans())
orders = {
    Mode.SHIPPED: ["say", "end", "end", "break"],
    Mode.PROTOTYPE: ["say", "call", "call", "append", "append", "end", "end", "break"],
}
"""What turns are told, by how often."""


@st.composite
def plans(draw: st.DrawFn, mode: Mode) -> list[Op]:
    told = st.builds(Op, st.sampled_from(orders[mode]), st.integers(0, 2))
    return draw(st.lists(st.one_of(creates, creates, told, told, st.just(Op("leave"))), max_size=50))


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
@settings(max_examples=80)
@given(st.data())
def test_every_lane_shows_exactly_what_the_rules_say(mode: Mode, data: st.DataObject) -> None:
    run(data.draw(plans(mode)), mode, **SMALL)


@pytest.mark.full
@pytest.mark.parametrize("mode", list(Mode))
@settings(max_examples=2000)
@given(st.data())
def test_every_lane_shows_exactly_what_the_rules_say_however_often_they_are_tried(
    mode: Mode, data: st.DataObject
) -> None:
    run(data.draw(plans(mode)), mode, **SMALL)


def diced(seed: int, mode: Mode, turns: int, lanes: int) -> list[Op]:
    """A long plan: so many creates on so many lanes, and now and then everything is left."""
    dice = random.Random(seed)
    plan: list[Op] = []
    choose: Callable[[list[Any]], Any] = dice.choice
    while turns:
        if dice.random() < 0.45:
            turns -= 1
            kind = choose([HELD, HELD, HELD, HELD, FREE, *KINDS])
            pick = choose([-1, -1, -1, -1, -2, -3, *range(lanes)])
            plan.append(Op("create", pick, dice.randrange(lanes), kind, dice.random() < 0.5))
        elif dice.random() < 0.004:
            plan.append(Op("leave"))
        else:
            plan.append(Op(choose(orders[mode]), dice.randrange(100)))
    return plan


TOLD = {"response.created", "response.output_text.delta", "response.done", *TERMINALS}
"""What the model of the rules speaks of; ``Replay`` sees to all others."""
EVERYTHING = {
    Mode.SHIPPED: {
        "created", "delta", "completed", "incomplete", "failed", "previous_response_not_found", "no_tool_call_found",
        "invalid_type",
    },
}  # fmt: skip
EVERYTHING[Mode.PROTOTYPE] = EVERYTHING[Mode.SHIPPED] | {"done"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
def test_twenty_lanes_of_one_connection_keep_to_the_rules(mode: Mode) -> None:
    """With the documented bounds: 16 responses at once, and more lanes than that."""
    assert run(diced(1, mode, turns=300, lanes=20), mode) >= EVERYTHING[mode]


@pytest.mark.full
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("lanes", [16, 17, 20, 40])
def test_thousands_of_turns_on_sixteen_lanes_and_more_keep_to_the_rules(lanes: int, mode: Mode) -> None:
    assert run(diced(lanes, mode, turns=16 * 200, lanes=lanes), mode) >= EVERYTHING[mode]


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
def test_a_short_plan_reaches_every_kind_of_answer(mode: Mode) -> None:
    """The law above is worth something only if its plans get through to each."""
    seen = run(diced(1, mode, turns=200, lanes=6), mode, **SMALL)
    assert seen >= EVERYTHING[mode] | {"queue_full", "websocket_stream_limit_reached"}
    assert mode is Mode.SHIPPED or "response_suspended" in seen


def test_a_rollout_that_goes_on_comes_before_turns_that_have_waited_longer() -> None:
    plan = [
        Op("create", lane=0),
        Op("call"),
        Op("create", lane=1),
        Op("create", lane=2),
        Op("append", 0),
        Op("end", 0),
        Op("say", 0),
        Op("end", 0),
    ]
    assert "done" in run(plan, Mode.PROTOTYPE, connection_active_turns=1)
