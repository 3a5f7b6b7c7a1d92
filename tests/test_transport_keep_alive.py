"""When an HTTP connection is over: what holds it, what only delays its end, and what a stopping server says."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from respserver.transport.keep_alive import BODY_BYTES_PER_SECOND, SLOW_BODY_SECONDS, Requests

# Any in this file: ASGI scopes and messages are open dictionaries.

IDLE = 10.0
HTTP = {"type": "http"}
PART = {"type": "http.request", "body": b"x", "more_body": True}
LAST_PART = {"type": "http.request", "body": b"", "more_body": False}
START = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}


class Peer:
    """An app that takes a whole body and then works until it is let go, and the messages on both sides of it."""

    def __init__(self) -> None:
        self.requests = Requests(self.app, IDLE)
        self.release = trio.Event()
        self.sent: list[dict[str, Any]] = []
        self.give, self._given = trio.open_memory_channel[dict[str, Any]](10)

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        while scope["type"] == "http" and (await receive()).get("more_body"):
            pass
        await self.release.wait()
        await send(START)

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def serve(self, scope: dict[str, Any] = HTTP) -> None:
        await self.requests(scope, self._given.receive, self.send)

    async def drip(self, size: int) -> None:
        """A part of a body of this size each second, for ever."""
        while True:
            await self.give.send({**PART, "body": bytes(size)})
            await trio.sleep(1)

    async def seconds_until_over(self) -> float:
        began = trio.current_time()
        await self.requests.wait_over()
        return trio.current_time() - began


async def test_a_connection_without_requests_is_over_after_its_time(autojump_clock: MockClock) -> None:
    peer = Peer()
    assert await peer.seconds_until_over() == pytest.approx(IDLE)


@pytest.mark.parametrize("scope", [HTTP, {"type": "websocket"}])
async def test_what_runs_holds_its_connection_and_then_the_time_begins(
    autojump_clock: MockClock, scope: dict[str, Any]
) -> None:
    peer = Peer()
    peer.give.send_nowait(LAST_PART)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve, scope)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(IDLE * 5)
        peer.release.set()
        assert await peer.seconds_until_over() == pytest.approx(IDLE)


async def test_a_body_that_goes_on_coming_is_waited_for_and_one_that_stalls_is_not(autojump_clock: MockClock) -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        for _ in range(5):
            await trio.sleep(IDLE * 0.9)
            peer.give.send_nowait(PART)
        await trio.testing.wait_all_tasks_blocked()
        assert peer.requests.are_arriving
        assert await peer.seconds_until_over() == pytest.approx(IDLE)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("rate", "of_its_time"), [(1, 1), (BODY_BYTES_PER_SECOND // 2, 2)])
async def test_a_body_that_drips_is_cut_once_it_is_behind_its_least_rate(
    autojump_clock: MockClock, rate: int, of_its_time: float
) -> None:
    """Half the least rate gives it twice the time."""
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        nursery.start_soon(peer.drip, rate)
        with trio.fail_after(SLOW_BODY_SECONDS * 4):
            assert await peer.seconds_until_over() == pytest.approx(SLOW_BODY_SECONDS * of_its_time, abs=2)
        assert peer.requests.are_arriving
        nursery.cancel_scope.cancel()


async def test_a_body_that_keeps_to_the_least_rate_has_all_the_time_it_needs(autojump_clock: MockClock) -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        with trio.move_on_after(SLOW_BODY_SECONDS * 4):
            nursery.start_soon(peer.drip, BODY_BYTES_PER_SECOND)
            await peer.requests.wait_over()
            raise AssertionError("the body was cut")
        nursery.cancel_scope.cancel()


async def test_a_slow_body_takes_no_time_from_what_follows_it(autojump_clock: MockClock) -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        for _ in range(int(SLOW_BODY_SECONDS // IDLE)):
            peer.give.send_nowait(PART)
            await trio.sleep(IDLE * 0.9)
        peer.give.send_nowait(LAST_PART)
        await trio.sleep(SLOW_BODY_SECONDS)
        peer.release.set()
        assert await peer.seconds_until_over() == pytest.approx(IDLE)


async def test_a_request_that_comes_in_the_last_moment_is_served(autojump_clock: MockClock) -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        await trio.sleep(IDLE * 0.99)
        peer.give.send_nowait(LAST_PART)
        nursery.start_soon(peer.serve)
        await trio.sleep(IDLE)
        assert not peer.requests.are_arriving
        peer.release.set()
    assert await peer.seconds_until_over() == pytest.approx(IDLE)


async def test_stop_ends_a_connection_that_waits_at_once(autojump_clock: MockClock) -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.requests.wait_over)
        await trio.testing.wait_all_tasks_blocked()
        peer.requests.stop()
    assert trio.current_time() == pytest.approx(0)


async def test_stop_does_not_wait_for_a_request_that_is_not_complete(autojump_clock: MockClock) -> None:
    peer = Peer()
    peer.give.send_nowait(PART)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        await trio.testing.wait_all_tasks_blocked()
        peer.requests.stop()
        assert await peer.seconds_until_over() == pytest.approx(0)
        assert peer.requests.are_arriving
        nursery.cancel_scope.cancel()


async def test_stop_lets_what_runs_end_and_its_answer_says_that_it_is_the_last(autojump_clock: MockClock) -> None:
    peer = Peer()
    peer.give.send_nowait(LAST_PART)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        await trio.testing.wait_all_tasks_blocked()
        peer.requests.stop()
        await trio.sleep(IDLE * 5)
        assert not peer.sent
        peer.release.set()
        assert await peer.seconds_until_over() == pytest.approx(0)
    assert peer.sent == [{**START, "headers": [(b"a", b"b"), (b"connection", b"close")]}]


async def test_an_answer_before_the_end_of_the_body_counts_as_running() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        assert not requests.are_arriving

    async def receive() -> dict[str, Any]:
        return PART

    requests = Requests(app, IDLE)
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await requests(HTTP, receive, send)
    assert sent == [START]


async def test_requests_that_are_open_can_be_waited_for_however_they_end(autojump_clock: MockClock) -> None:
    peer = Peer()
    await peer.requests.wait_none_open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.serve)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as scope:
            await peer.requests.wait_none_open()
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()
    await peer.requests.wait_none_open()
    assert not peer.requests.are_arriving
