"""The embedded model as an engine: runs, discards, forks, counters, pace, cancellation."""

from __future__ import annotations

import math
import sys

import msgspec
import pytest
import trio
import trio.testing

from respserver.engines.base import Engine, Sequence
from respserver.engines.sim import call, delay, fault, reasoning, step
from respserver.engines.sim.engine import BATCH, Sim
from respserver.errors import ConfigError, ModelFault
from respserver.tokens.special import Special
from tests.support.sim_kit import PARAMS, play, read, respond, sample, sim, template, user

LONG = "one two three four five six seven eight nine ten " * 20


def ids_of(text: str) -> list[int]:
    """The ids of a message with this text."""
    return [Special.START, *template().tokenise(["assistant"]), Special.SEP, *template().tokenise([text]), Special.END]


def test_sim_is_an_engine() -> None:
    engine: Engine = Sim(template())
    assert engine.name == "sim"


async def test_its_sequences_are_sequences() -> None:
    sequence: Sequence = await sim("a").open()
    await sequence.aclose()


async def test_a_run_is_whole_items_and_no_end_token() -> None:
    sequence = await sim("hello").open()
    await sequence.extend(user("hi"))
    batches = await play(sequence)
    assert [token for batch in batches for token in batch.ids] == ids_of("hello")


async def test_an_unpaced_run_leaves_in_bounded_batches_with_a_checkpoint_each() -> None:
    sequence = await sim(LONG).open()
    with trio.testing.assert_checkpoints():
        first = await sequence.next(PARAMS)
    rest = await play(sequence)
    assert len(first.ids) == BATCH
    assert all(len(batch.ids) <= BATCH for batch in rest)
    assert read([*first.ids, *(token for batch in rest for token in batch.ids)]) == [("message", LONG)]


async def test_the_last_ids_and_the_end_are_one_batch() -> None:
    batches = await play(await sim("hi").open())
    assert len(batches) == 1
    assert batches[0].finished


async def test_a_batch_is_no_larger_than_the_tokens_that_may_be_sampled() -> None:
    sequence = await sim(LONG).open()
    batch = await sequence.next(msgspec.structs.replace(PARAMS, max_tokens=5))
    assert len(batch.ids) == 5
    assert not batch.finished


async def test_with_no_tokens_left_one_is_still_handed_out_so_that_the_caller_sees_the_cut() -> None:
    sequence = await sim(LONG).open()
    assert len((await sequence.next(msgspec.structs.replace(PARAMS, max_tokens=0))).ids) == 1


async def test_sampled_ids_are_part_of_the_context_at_once() -> None:
    sequence = await sim("one", "two").open()
    await sequence.extend(user("a"))
    assert await sample(sequence) == [("message", "one")]
    await sequence.extend(user("b"))
    assert await sample(sequence) == [("message", "two")]


async def test_a_run_after_a_finished_one_needs_no_new_context() -> None:
    sequence = await sim("one", "two").open()
    assert await sample(sequence) == [("message", "one")]
    assert await sample(sequence) == [("message", "two")]


async def test_discarded_ids_are_forgotten_and_the_run_is_over() -> None:
    sequence = await sim("one", "two").open()
    await sequence.extend(user("a"))
    batch = await sequence.next(PARAMS)
    await sequence.discard(len(batch.ids))
    await sequence.extend(user("b"))
    assert await sample(sequence) == [("message", "one")]


async def test_a_run_that_was_cut_inside_an_item_counts_as_a_run() -> None:
    sequence = await sim(LONG, "two").open()
    await sequence.extend(user("a"))
    await sequence.next(PARAMS)
    await sequence.discard(3)
    await sequence.extend([Special.END, *user("b")])
    assert await sample(sequence) == [("message", "two")]


async def test_context_ends_a_run_that_was_left_without_discarding() -> None:
    sequence = await sim(LONG, "two").open()
    await sequence.next(PARAMS)
    await sequence.extend(user("b"))
    assert await sample(sequence) == [("message", "two")]


@pytest.mark.parametrize("count", [-1, 1000])
async def test_no_more_can_be_discarded_than_was_sampled(count: int) -> None:
    sequence = await sim("one").open()
    await sequence.extend(user("a"))
    await sequence.next(PARAMS)
    with pytest.raises(ValueError, match="were sampled since"):
        await sequence.discard(count)


async def test_context_cannot_be_discarded() -> None:
    sequence = await sim("one").open()
    await sequence.next(PARAMS)
    await sequence.extend(user("a"))
    with pytest.raises(ValueError, match="0 ids"):
        await sequence.discard(1)


async def test_a_fork_goes_its_own_way() -> None:
    trunk = await sim("one", "two", "three").open()
    await trunk.extend(user("a"))
    await sample(trunk)
    branch = await trunk.fork()
    await trunk.extend(user("b"))
    assert await sample(trunk) == [("message", "two")]
    await trunk.extend(user("c"))
    assert await sample(trunk) == [("message", "three")]
    await branch.extend(user("d"))
    assert await sample(branch) == [("message", "two")]


async def test_a_fork_in_the_middle_of_a_run_has_the_context_and_not_the_run() -> None:
    trunk = await sim(LONG, "two").open()
    await trunk.next(PARAMS)
    branch = await trunk.fork()
    await branch.extend(user("b"))
    assert await sample(branch) == [("message", "two")]
    assert (await trunk.next(PARAMS)).ids


async def test_counters_tell_what_happened() -> None:
    engine = sim("one", "two")
    first = await engine.open()
    await first.extend(user("a"))
    await first.extend(user("b"))
    batches = await play(first)
    second = await first.fork()
    assert engine.sequences_open == 2
    assert engine.extends == 2
    assert engine.extended_tokens == len(user("a")) + len(user("b"))
    assert engine.sampled_tokens == sum(len(batch.ids) for batch in batches)
    assert engine.runs == 1
    await first.aclose()
    await first.aclose()
    assert engine.sequences_open == 1
    await second.aclose()
    await engine.aclose()
    assert engine.sequences_open == 0


async def test_a_closed_sequence_refuses_everything() -> None:
    sequence = await sim("one").open()
    await sequence.aclose()
    for use in (sequence.extend([1]), sequence.next(PARAMS), sequence.discard(0), sequence.fork()):
        with pytest.raises(trio.ClosedResourceError):
            await use


async def test_a_replaced_script_is_played_from_the_next_run_on() -> None:
    engine = sim("one")
    sequence = await engine.open()
    assert await sample(sequence) == [("message", "one")]
    engine.script = sim("new one", "new two").script
    await sequence.extend(user("b"))
    assert await sample(sequence) == [("message", "new two")]
    engine.script = None
    await sequence.extend(user("c"))
    assert await sample(sequence) == [("message", "You said: c")]


class TestFaults:
    async def test_a_fault_comes_after_the_output_before_it(self) -> None:
        sequence = await sim(["half", fault("the engine broke", "overloaded"), "never"]).open()
        batch = await sequence.next(PARAMS)
        assert read(batch.ids) == [("message", "half")]
        assert not batch.finished
        with pytest.raises(ModelFault, match="the engine broke") as caught:
            await sequence.next(PARAMS)
        assert caught.value.code == "overloaded"

    async def test_a_fault_alone_comes_at_once(self) -> None:
        sequence = await sim(fault("no")).open()
        with pytest.raises(ModelFault, match="no"):
            await sequence.next(PARAMS)

    @pytest.mark.parametrize("after", [0, 1, 4])
    async def test_a_fault_after_tokens_cuts_an_item(self, after: int) -> None:
        sequence = await sim(step(LONG, fault=fault("broke"), fault_after_tokens=after)).open()
        if after:
            assert list((await sequence.next(PARAMS)).ids) == ids_of(LONG)[:after]
        with pytest.raises(ModelFault, match="broke"):
            await sequence.next(PARAMS)

    async def test_a_fault_after_more_tokens_than_there_are_comes_at_the_end(self) -> None:
        sequence = await sim(step("hi", fault=fault("broke"), fault_after_tokens=1000)).open()
        assert list((await sequence.next(PARAMS)).ids) == ids_of("hi")
        with pytest.raises(ModelFault):
            await sequence.next(PARAMS)

    async def test_each_fault_is_an_exception_of_its_own(self) -> None:
        engine = sim(fault("no"))
        caught = []
        for _ in range(2):
            with pytest.raises(ModelFault) as info:
                await respond(engine)
            caught.append(info.value)
        assert caught[0] is not caught[1]

    async def test_a_faulted_sequence_can_be_closed(self) -> None:
        engine = sim(fault("no"))
        sequence = await engine.open()
        with pytest.raises(ModelFault):
            await sequence.next(PARAMS)
        await sequence.aclose()
        assert engine.sequences_open == 0


class TestPace:
    @pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan, -0.5])
    @pytest.mark.parametrize("name", ["tps", "ttft", "jitter"])
    def test_a_pace_that_cannot_be_kept_is_refused_by_name(self, name: str, wrong: float) -> None:
        with pytest.raises(
            ConfigError, match=f"^{name}: expected a( finite)? number (of at least 0|from 0 to 1), got "
        ):
            sim("a", **{name: wrong})

    def test_jitter_is_a_share(self) -> None:
        sim("a", jitter=1)
        with pytest.raises(ConfigError, match=r"^jitter: expected a number from 0 to 1, got 1\.5"):
            sim("a", jitter=1.5)

    @pytest.mark.parametrize("tps", [1e300, sys.float_info.max])
    async def test_a_pace_beyond_all_measure_is_at_once(
        self, autojump_clock: trio.testing.MockClock, tps: float
    ) -> None:
        sequence = await sim([LONG, delay(9), "end"], tps=tps, jitter=1).open()
        await sequence.next(msgspec.structs.replace(PARAMS, max_tokens=1))
        await trio.sleep(5)
        started = trio.current_time()
        assert (await play(sequence))[-1].finished
        assert trio.current_time() - started < 10

    async def test_tokens_leave_on_an_absolute_schedule(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim("one two three", tps=10, ttft=1.5).open()
        start, times = trio.current_time(), []
        finished = False
        while not finished:
            batch = await sequence.next(PARAMS)
            times.append(trio.current_time() - start)
            assert len(batch.ids) == 1
            finished = batch.finished
        assert times == pytest.approx([1.5 + number / 10 for number in range(len(times))])

    async def test_what_is_due_leaves_together(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim(LONG, tps=10).open()
        await sequence.next(PARAMS)
        await trio.sleep(1.0)
        assert len((await sequence.next(PARAMS)).ids) == 10

    async def test_fast_tokens_join_to_a_batch_every_two_milliseconds(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        sequence = await sim(LONG, tps=4000).open()
        start = trio.current_time()
        sizes, times = [], []
        for _ in range(4):
            sizes.append(len((await sequence.next(PARAMS)).ids))
            times.append(trio.current_time() - start)
        assert sizes == [1, 8, 8, 8]
        assert times == pytest.approx([0, 0.002, 0.004, 0.006])

    async def test_time_to_first_token_also_holds_without_a_rate(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim("hi", ttft=2).open()
        start = trio.current_time()
        assert (await sequence.next(PARAMS)).finished
        assert trio.current_time() - start == pytest.approx(2)

    async def test_a_delay_is_a_silence_between_outputs(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim([reasoning("hm"), delay(3), "done"]).open()
        start = trio.current_time()
        first = await sequence.next(PARAMS)
        assert read(first.ids) == [("reasoning", "hm")]
        assert trio.current_time() == start
        second = await sequence.next(PARAMS)
        assert read(second.ids) == [("message", "done")]
        assert trio.current_time() - start == pytest.approx(3)
        assert second.finished

    async def test_a_delay_at_the_end_holds_the_end_back(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim(["done", delay(3)]).open()
        start = trio.current_time()
        assert not (await sequence.next(PARAMS)).finished
        assert (await sequence.next(PARAMS)).finished
        assert trio.current_time() - start == pytest.approx(3)

    async def test_a_step_may_have_its_own_pace(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim(step("one two three", tps=2, ttft=5)).open()
        start = trio.current_time()
        count = len(await play(sequence))
        assert trio.current_time() - start == pytest.approx(5 + (count - 1) / 2)

    async def test_jitter_is_the_same_every_time_and_never_more_than_its_share(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def lateness() -> list[float]:
            sequence = await sim(LONG, tps=10, jitter=0.5).open()
            start = trio.current_time()
            late = []
            for number in range(20):
                assert len((await sequence.next(PARAMS)).ids) == 1
                late.append(trio.current_time() - start - number / 10)
            return late

        first = await lateness()
        assert await lateness() == pytest.approx(first)
        assert min(first) >= -1e-9
        assert max(first) <= 0.05 + 1e-9
        assert max(first) - min(first) > 0.03

    async def test_cancelling_a_run_leaves_the_sequence_closable(self, autojump_clock: trio.testing.MockClock) -> None:
        engine = sim(LONG, tps=1)
        sequence = await engine.open()
        await sequence.next(PARAMS)
        with trio.move_on_after(0.5) as scope:
            await sequence.next(PARAMS)
        assert scope.cancelled_caught
        assert engine.sampled_tokens == 1
        with trio.CancelScope() as scope:
            scope.cancel()
            await sequence.aclose()
        assert engine.sequences_open == 0

    async def test_a_cancelled_next_loses_no_token(self, autojump_clock: trio.testing.MockClock) -> None:
        sequence = await sim("one two", tps=1).open()
        got = list((await sequence.next(PARAMS)).ids)
        with trio.move_on_after(0.5):
            await sequence.next(PARAMS)
        for batch in await play(sequence):
            got += batch.ids
        assert got == ids_of("one two")

    async def test_an_unpaced_run_can_be_cancelled(self) -> None:
        sequence = await sim(LONG).open()
        with trio.CancelScope() as scope:
            scope.cancel()
            await sequence.next(PARAMS)
        assert scope.cancelled_caught


async def test_many_sequences_share_one_script_without_counting_together() -> None:
    engine = sim(call("get_weather"), "sunny")
    first, second = await engine.open(), await engine.open()
    for sequence in (first, second):
        await sequence.extend(user("hi"))
        assert await sample(sequence) == [("function_call", "get_weather", "{}")]
