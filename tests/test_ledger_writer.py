"""The writer between turns and ledger, alone and under ``PostInference``: nothing waits for it, nothing is lost."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from respserver.ledger import writer as writer_module
from respserver.ledger.base import TurnRecord
from respserver.ledger.memory import MemoryLedger
from respserver.ledger.writer import BATCH, FIRST_DELAY, GATHER_SECONDS, LAST_DELAY, LedgerWriter
from respserver.turn.postinference import PostInference
from tests.support.ledger_kit import FlakyLedger, record, usage

LOGGER = "respserver.ledger"


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.name == LOGGER]


async def settle(writer: LedgerWriter, nursery: trio.Nursery, *numbers: int) -> None:
    """Start the writer on some records; its first attempt has begun when this returns."""
    nursery.start_soon(writer.run)
    for number in numbers:
        writer.add(record(number))
    await trio.sleep(GATHER_SECONDS + 0.001)


async def test_what_waits_is_written_together_in_order(autojump_clock: trio.testing.MockClock) -> None:
    ledger = FlakyLedger(busy=0.1)
    writer = LedgerWriter(ledger, 10)
    async with trio.open_nursery() as nursery:
        await settle(writer, nursery, 0)
        for number in range(1, 30):  # while the first is being written; more than the bound of an outage
            writer.add(record(number))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert ledger.batches == [1, 29]
    assert ledger.ids == [f"resp_{number}" for number in range(30)]
    assert (writer.written, writer.waiting, writer.lost, writer.failures) == (30, 0, 0, 0)


async def test_records_that_come_shortly_after_one_another_share_a_transaction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ledger = FlakyLedger()
    writer = LedgerWriter(ledger, 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for number in range(100):
            writer.add(record(number))
            await trio.sleep(GATHER_SECONDS / 10)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert len(ledger.ids) == 100
    assert len(ledger.batches) <= 11


async def test_a_transaction_has_a_greatest_size() -> None:
    ledger = FlakyLedger()
    writer = LedgerWriter(ledger, 10)
    for number in range(2 * BATCH + 1):
        writer.add(record(number))
    await writer.finish(5)
    assert ledger.batches == [BATCH, BATCH, 1]


@pytest.mark.parametrize("bad", range(1, 6))
async def test_whichever_write_fails_no_row_is_lost_or_doubled(
    bad: int, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "BATCH", 3)
    ledger = FlakyLedger(lambda number: number == bad)
    writer = LedgerWriter(ledger, 100)
    async with trio.open_nursery() as nursery:
        await settle(writer, nursery, *range(7))
        await trio.sleep(1)
        for number in range(7, 13):
            writer.add(record(number))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert ledger.ids == [f"resp_{number}" for number in range(13)]
    assert (writer.failures, writer.lost, writer.waiting) == (1, 0, 0)


async def test_an_outage_is_logged_once_and_its_end_once(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    writer = LedgerWriter(FlakyLedger(lambda number: number <= 4 or number == 7), 100)
    async with trio.open_nursery() as nursery:
        await settle(writer, nursery, 0)
        await trio.sleep(60)
        assert events(caplog) == ["ledger_unavailable", "ledger_available"]
        writer.add(record(1))
        await trio.sleep(60)
        assert len(events(caplog)) == 2
        writer.add(record(2))
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert events(caplog) == ["ledger_unavailable", "ledger_available"] * 2
    ends: list[Any] = [entry for entry in caplog.records if entry.getMessage() == "ledger_available"]
    assert [end.failures for end in ends] == [4, 1]
    assert "disk is full" in str(caplog.records[0].__dict__["problem"])


async def test_attempts_become_rarer_and_stay_at_the_longest_delay(autojump_clock: trio.testing.MockClock) -> None:
    times: list[float] = []

    def note(_number: int) -> bool:
        times.append(trio.current_time())
        return True

    writer = LedgerWriter(FlakyLedger(note), 100)
    async with trio.open_nursery() as nursery:
        await settle(writer, nursery, 0)
        for number in range(1, 50):
            writer.add(record(number))
            await trio.sleep(5)  # new records hasten nothing
        nursery.cancel_scope.cancel()
    delays = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert delays[:3] == pytest.approx([FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY])
    assert delays[-1] == pytest.approx(LAST_DELAY)


async def test_an_outage_past_the_bound_gives_up_the_newest_rows_and_says_so(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    ledger = FlakyLedger(lambda number: number <= 2)
    writer = LedgerWriter(ledger, 3)
    async with trio.open_nursery() as nursery:
        await settle(writer, nursery, 0)
        for number in range(1, 6):
            writer.add(record(number))
        assert (writer.waiting, writer.lost) == (3, 3)
        await trio.sleep(10)
        writer.add(record(6))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert ledger.ids == ["resp_0", "resp_1", "resp_2", "resp_6"]
    assert events(caplog) == ["ledger_unavailable", "ledger_backlog_full", "ledger_available"]
    assert caplog.records[-1].__dict__["lost"] == 3


async def test_a_ledger_that_breaks_in_its_own_way_is_an_outage_too(autojump_clock: trio.testing.MockClock) -> None:
    class Broken(FlakyLedger):
        async def write(self, records: list[TurnRecord]) -> None:
            self.attempts += 1
            if self.attempts == 1:
                raise ZeroDivisionError
            await MemoryLedger.write(self, records)

    ledger = Broken()
    writer = LedgerWriter(ledger, 3)
    async with trio.open_nursery() as nursery:
        await settle(writer, nursery, 0)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert ledger.ids == ["resp_0"]


async def test_the_end_waits_for_a_ledger_that_comes_back(autojump_clock: trio.testing.MockClock) -> None:
    ledger = FlakyLedger(lambda number: number <= 3)
    writer = LedgerWriter(ledger, 10)
    writer.add(record(0))
    await writer.finish(5)
    assert ledger.ids == ["resp_0"]
    assert ledger.is_closed


async def test_what_cannot_be_written_in_time_is_logged_as_lost_with_its_counts(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    ledger = FlakyLedger(lambda number: True)
    writer = LedgerWriter(ledger, 10)
    for number in range(3):
        writer.add(record(number, usage=usage(100, output_tokens=11)))
    before = trio.current_time()
    await writer.finish(5)
    assert trio.current_time() - before == pytest.approx(5)
    last: Any = caplog.records[-1]
    assert (last.getMessage(), last.levelname, last.count, last.total_tokens) == ("ledger_rows_lost", "ERROR", 3, 333)
    assert (writer.lost, writer.waiting, ledger.is_closed) == (3, 0, True)
    writer.add(record(3))
    assert writer.lost == 4


async def test_a_ledger_that_cannot_be_closed_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(MemoryLedger):
        async def aclose(self) -> None:
            raise OSError("no")

    await LedgerWriter(Stuck(1), 1).finish(1)
    assert events(caplog) == ["ledger_close_failed"]


async def test_turns_do_not_wait_for_a_ledger_that_hangs(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    ledger = FlakyLedger(busy=3)
    post = PostInference(2, ledger, end_seconds=60)
    with caplog.at_level(logging.INFO, "respserver.turn"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post.run)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            for number in range(50):  # far past the line's bound, in one step: submit has nowhere to wait
                post.submit(record(number))
            await trio.testing.wait_all_tasks_blocked()
            assert trio.current_time() == began
            assert sum(entry.getMessage() == "turn" for entry in caplog.records) == 50
            post.close()
    assert sorted(ledger.ids) == sorted(f"resp_{number}" for number in range(50))
    assert ledger.is_closed


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5])
async def test_nothing_is_lost_or_doubled_when_the_server_is_cancelled(
    seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    ledger = FlakyLedger(lambda number: number == 2, busy=1)
    post = PostInference(4, ledger, end_seconds=60)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post.run)
            for number in range(9):
                post.submit(record(number))
            await trio.sleep_forever()
    assert sorted(ledger.ids) == sorted(f"resp_{number}" for number in range(9))
    post.submit(record(9))
    assert post.writer.lost == 1


async def test_a_turns_line_tells_what_is_unusual_about_it(caplog: pytest.LogCaptureFixture) -> None:
    post = PostInference(1)
    unusual = {"previous_response_id": "resp_0", "pauses": 2, "error_code": "server_error", "verdict": "flagged: terms"}
    with caplog.at_level(logging.INFO, "respserver.turn"):
        post.submit(record(1))
        post.submit(record(2, **unusual))
        post.close()
        await post.run()
    lines = {entry.__dict__["response_id"]: entry.__dict__ for entry in caplog.records if entry.getMessage() == "turn"}
    assert not unusual.keys() & lines["resp_1"].keys()
    assert unusual.items() <= lines["resp_2"].items()


async def test_a_turn_without_a_time_gets_the_one_it_was_handed_over_at() -> None:
    ledger = MemoryLedger(10)
    post = PostInference(4, ledger, now=lambda: 123.5)
    post.submit(record(0, created_at=0.0))
    post.submit(record(1, created_at=7.0))
    post.close()
    await post.run()
    assert [entry.created_at for entry in ledger.records] == [123.5, 7.0]


async def test_the_memory_ledger_keeps_the_latest() -> None:
    ledger = MemoryLedger(3)
    await ledger.write([record(0), record(1)])
    await ledger.write([record(2), record(3)])
    await ledger.aclose()
    await ledger.aclose()
    assert [entry.response_id for entry in ledger.records] == ["resp_1", "resp_2", "resp_3"]


@pytest.mark.slow
@given(st.lists(st.integers(0, 6), max_size=12), st.sets(st.integers(1, 15)))
def test_every_record_has_one_row_whatever_the_bursts_and_failures(bursts: list[int], bad: set[int]) -> None:
    ledger = FlakyLedger(lambda number: number in bad)

    async def play() -> None:
        post = PostInference(2, ledger, end_seconds=1000)
        numbers = itertools.count()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post.run)
            for burst in bursts:
                for number in itertools.islice(numbers, burst):
                    post.submit(record(number))
                await trio.sleep(0.15)
            post.close()

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sorted(ledger.ids) == sorted(f"resp_{number}" for number in range(sum(bursts)))
