"""Who is asked when, what ends the asking, and that no classifier costs nothing."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from respserver.config import LatencyClassifierConfig
from respserver.errors import ContextLengthExceeded, ScreeningFailed
from respserver.schema.input import user_message
from respserver.turn.safety.base import PASS, Verdict
from respserver.turn.safety.latency import LatencyClassifier
from respserver.turn.safety.screening import Screening

FLAG = Verdict("flag", ("spam",))
BLOCK = Verdict("block", ("weapons",))
NEW = [user_message("new")]
ALL = [user_message("old"), *NEW]


class Says:
    """A classifier that says one thing, after a while, and notes what it was asked and how it ended."""

    def __init__(self, answer, *, when="before", reads="new", seconds=0.0):
        self.name = "says"
        self.answer, self.when, self.reads, self.seconds = answer, when, reads, seconds
        self.asked = []
        self.ended = []

    async def screen(self, items, verdict):
        self.asked.append((items, verdict))
        try:
            await trio.sleep(self.seconds)
        except trio.Cancelled:
            self.ended.append("cancelled")
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        self.ended.append("spoken")
        return self.answer

    async def aclose(self):
        self.ended.append("closed")


async def whole():
    return ALL


async def never():
    raise AssertionError("nobody reads the whole context")


async def nothing():
    pass


async def test_without_classifiers_there_is_no_wait_and_no_task():
    screening = Screening()
    with trio.testing.assert_no_checkpoints():
        assert await screening.before(NEW, never, FLAG) is FLAG
        assert await screening.beside(nothing, NEW, never, FLAG) is FLAG
    assert not screening.needs_context


async def test_each_is_asked_at_its_time_only():
    first, second = Says(PASS), Says(FLAG, when="beside")
    screening = Screening([first, second])
    assert await screening.before(NEW, never, PASS) == PASS
    assert (len(first.asked), len(second.asked)) == (1, 0)
    assert await screening.beside(nothing, NEW, never, PASS) == FLAG
    assert (len(first.asked), len(second.asked)) == (1, 1)


async def test_each_gets_what_it_reads_and_the_verdict_so_far():
    new, context = Says(PASS), Says(PASS, reads="context")
    screening = Screening([new, context])
    assert screening.needs_context
    assert await screening.before(NEW, whole, FLAG) == FLAG
    assert new.asked == [(NEW, FLAG)]
    assert context.asked == [(ALL, FLAG)]


async def test_the_whole_context_is_loaded_once_and_only_for_those_that_are_asked():
    loads = []

    async def load():
        loads.append(1)
        return ALL

    screening = Screening([Says(PASS), *(Says(PASS, when="beside", reads="context") for _ in range(2))])
    await screening.before(NEW, load, PASS)
    assert not loads
    await screening.beside(nothing, NEW, load, PASS)
    assert len(loads) == 1


@pytest.mark.parametrize("when", ["before", "beside"])
async def test_all_are_asked_at_once_and_what_they_say_adds_up(autojump_clock, when):
    answers = [Verdict("flag", ("a",)), PASS, Verdict("flag", ("b",))]
    screening = Screening(Says(answer, when=when, seconds=3 - at) for at, answer in enumerate(answers))
    started = trio.current_time()
    verdict = await _ask(screening, when, Verdict("flag", ("old",)))
    assert trio.current_time() - started == pytest.approx(3)
    assert verdict == Verdict("flag", ("old", "b", "a"))


@pytest.mark.parametrize("when", ["before", "beside"])
async def test_the_first_block_ends_the_others(autojump_clock, when):
    quick, slow = Says(BLOCK, when=when, seconds=1), Says(FLAG, when=when, seconds=60)
    started = trio.current_time()
    assert await _ask(Screening([slow, quick]), when, PASS) == BLOCK
    assert trio.current_time() - started == pytest.approx(1)
    assert slow.ended == ["cancelled"]


async def test_a_flag_ends_nobody(autojump_clock):
    slow = Says(BLOCK, seconds=60)
    assert (await Screening([Says(FLAG), slow]).before(NEW, never, PASS)).blocks
    assert slow.ended == ["spoken"]


async def test_a_single_classifier_is_merged_with_the_verdict_so_far():
    assert await Screening([Says(BLOCK)]).before(NEW, never, FLAG) == Verdict("block", ("spam", "weapons"))


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("when", ["before", "beside"])
async def test_what_a_classifier_raises_comes_out_bare_and_ends_the_others(autojump_clock, when, others):
    slow = [Says(PASS, when=when, seconds=60) for _ in range(others)]
    screening = Screening([Says(ScreeningFailed(), when=when, seconds=1), *slow])
    with pytest.raises(ScreeningFailed):
        await _ask(screening, when, PASS)
    assert trio.current_time() < 10
    assert all(one.ended == ["cancelled"] for one in slow)


async def test_a_block_weighs_more_than_a_fault_of_the_same_moment(autojump_clock):
    class Stubborn(Says):
        async def screen(self, items, verdict):
            with trio.CancelScope(shield=True):
                return await super().screen(items, verdict)

    screening = Screening([Says(ScreeningFailed()), Stubborn(BLOCK, seconds=1)])
    assert await screening.before(NEW, never, PASS) == BLOCK


async def test_rendering_runs_meanwhile_and_is_waited_for(autojump_clock):
    rendered = []

    async def render():
        await trio.sleep(2)
        rendered.append(trio.current_time())

    screening = Screening([Says(FLAG, when="beside", seconds=1)])
    started = trio.current_time()
    assert await screening.beside(render, NEW, never, PASS) == FLAG
    assert [at - started for at in rendered] == [pytest.approx(2)]
    await Screening([Says(PASS, when="beside", seconds=5)]).beside(render, NEW, never, PASS)
    assert trio.current_time() - started == pytest.approx(7)


async def test_a_block_cancels_the_rendering(autojump_clock):
    screening = Screening([Says(BLOCK, when="beside", seconds=1)])
    assert await screening.beside(trio.sleep_forever, NEW, never, PASS) == BLOCK


@pytest.mark.parametrize("classifiers", [0, 1, 2])
async def test_what_rendering_raises_comes_out_bare(autojump_clock, classifiers):
    async def render():
        raise ContextLengthExceeded

    screening = Screening(Says(PASS, when="beside", seconds=60) for _ in range(classifiers))
    with pytest.raises(ContextLengthExceeded):
        await screening.beside(render, NEW, never, PASS)
    assert trio.current_time() < 10


@pytest.mark.parametrize("when", ["before", "beside"])
async def test_a_cancelled_turn_stops_the_asking(autojump_clock, when):
    classifiers = [Says(PASS, when=when, seconds=60) for _ in range(2)]
    with trio.move_on_after(1) as scope:
        await _ask(Screening(classifiers), when, PASS)
    assert scope.cancelled_caught
    assert [one.ended for one in classifiers] == [["cancelled"], ["cancelled"]]


async def test_closing_closes_every_classifier():
    classifiers = [Says(PASS), Says(PASS, when="beside")]
    await Screening(classifiers).aclose()
    assert all(one.ended == ["closed"] for one in classifiers)


async def test_artificial_latency_passes_everything_after_its_time(autojump_clock):
    classifier = LatencyClassifier(LatencyClassifierConfig(seconds=0.05, when="beside"))
    started = trio.current_time()
    assert await Screening([classifier]).beside(nothing, NEW, never, PASS) == PASS
    assert trio.current_time() - started == pytest.approx(0.05)
    await classifier.aclose()


async def _ask(screening, when, verdict):
    if when == "before":
        return await screening.before(NEW, never, verdict)
    return await screening.beside(nothing, NEW, never, verdict)
