"""What leaves together: a turn's last events and its end are one write, unless the store stands between them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import trio
import trio.testing

from respserver.config import Config
from respserver.engines.sim import Script
from respserver.services import build_services
from respserver.session import Session
from respserver.state import ResponseState
from respserver.store.base import Store
from respserver.store.memory import MemoryStore
from tests.support.fake_socket import FakeSocket

BEGIN = ["response.created", "response.in_progress"]


class Writes(FakeSocket):
    """Notes which events came in each write."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[str]] = []

    def send_many(self, messages: Sequence[bytes]) -> None:
        self.seen.append([json.loads(message)["type"] for message in messages])
        super().send_many(messages)


class SlowStore(MemoryStore):
    """Saves once it is told to."""

    def __init__(self) -> None:
        super().__init__(max_responses=10, max_bytes=1 << 20, max_idle_seconds=60, now=lambda: 0.0)
        self.may_save = trio.Event()

    async def save(self, state: ResponseState) -> None:
        await self.may_save.wait()
        await super().save(state)


class BrokenStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__(max_responses=10, max_bytes=1 << 20, max_idle_seconds=60, now=lambda: 0.0)

    async def save(self, state: ResponseState) -> None:
        raise OSError("the disk is full")


async def begin(nursery: trio.Nursery, *, stored: bool, store: Store | None = None) -> Writes:
    """A session that was sent one create and runs."""
    services = build_services(Config(), script=Script.of("Done."), store=store)
    socket = Writes()
    nursery.start_soon(Session(socket, services, tenant="", stop=trio.Event()).run)
    socket.say({"type": "response.create", "model": "sim", "input": "go", "store": stored})
    return socket


async def test_the_last_tokens_of_an_unstored_turn_leave_in_one_write_with_its_terminal() -> None:
    async with trio.open_nursery() as nursery:
        socket = await begin(nursery, stored=False)
        await socket.hear_step()
        first, last = socket.seen
        assert first == BEGIN
        assert last[0] == "response.output_item.added"
        assert last[-2:] == ["response.output_item.done", "response.completed"]
        nursery.cancel_scope.cancel()


async def test_a_save_that_takes_its_time_holds_up_the_terminal_alone() -> None:
    store = SlowStore()
    async with trio.open_nursery() as nursery:
        socket = await begin(nursery, stored=True, store=store)
        await trio.testing.wait_all_tasks_blocked()
        assert [write[-1] for write in socket.seen] == [BEGIN[-1], "response.output_item.done"]
        store.may_save.set()
        await socket.hear_step()
        assert socket.seen[2:] == [["response.completed"]]
        nursery.cancel_scope.cancel()


async def test_nothing_is_said_twice_when_the_save_fails() -> None:
    async with trio.open_nursery() as nursery:
        socket = await begin(nursery, stored=True, store=BrokenStore())
        frames = await socket.hear_step()
        assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
        types = [frame["type"] for frame in frames]
        assert types[-2:] == ["response.output_item.done", "response.failed"]
        assert types.count("response.output_item.done") == 1
        nursery.cancel_scope.cancel()
