"""Where a transcript can be played beside the rules alone: on a session with a clock of its own, and on a port."""

from __future__ import annotations

import contextlib
import time

import trio
import trio.testing

from respserver.config import Mode
from tests.support.fake_socket import FakeSocket
from tests.support.live import PATIENCE, Frame, Wire
from tests.support.spy import Spy
from tests.support.talk import Talk, services, settled, spy_of
from tests.support.transcript import Transcript


class SessionEnd:
    """A session on a fake socket; time passes when the transcript says so."""

    def __init__(self, transcript: Transcript, nursery: trio.Nursery, clock: trio.testing.MockClock) -> None:
        self._services = services(transcript.script, mode=Mode.PROTOTYPE, **{"grace_seconds": 0.0, **transcript.limits})
        self._talk = Talk(nursery, self._services)
        self._clock = clock
        self.contexts = spy_of(self._services).contexts

    @property
    def socket(self) -> FakeSocket:
        return self._talk.socket

    async def say(self, text: str) -> None:
        await self.quiet()
        self.socket.say(text)

    async def hear(self) -> Frame | None:
        if not self.socket.unheard:
            await self.quiet()
        return await self.socket.hear() if self.socket.unheard else None

    async def wait_for_model(self, count: int) -> None:
        if len(self.contexts) < count:
            await self.quiet()

    async def quiet(self) -> None:
        """Let everybody go as far as they get, worker threads too."""
        await settled()
        while self._services.tokenise_limiter.borrowed_tokens:
            # Real time: a thread that tokenises knows nothing of the mock clock.
            await trio.to_thread.run_sync(time.sleep, 0.002)
            await settled()

    async def act(self, what: str) -> None:
        await self.quiet()
        match what.split():
            case ["pass", seconds]:
                self._clock.jump(float(seconds))
            case ["leave"]:
                self.socket.leave()
            case ["stop"]:
                self._talk.stop.set()
            case ["closed", code]:
                assert self.socket.code == int(code), f"its close code is {self.socket.code}"
            case ["suspended", count]:
                assert self._services.suspensions.count == int(count), self._services.suspensions.count
            case _:
                raise ValueError(what)
        await self.quiet()

    async def over(self) -> None:
        """The client leaves, and nothing of it is left."""
        self.socket.leave()
        await self._talk.over.wait()
        await self.quiet()
        slots = self._services.slots
        assert (self._services.suspensions.count, slots.active, slots.waiting) == (0, 0, 0)
        self._services.kept.clear()
        await self.quiet()
        assert spy_of(self._services).sequences_open == 0


class SocketEnd:
    """A real server's port."""

    def __init__(self, spy: Spy, wire: Wire) -> None:
        self.contexts = spy.contexts
        self._wire = wire

    async def say(self, text: str) -> None:
        await self._wire.socket.send_message(text)

    async def hear(self) -> Frame | None:
        with contextlib.suppress(trio.TooSlowError):
            return await self._wire.receive()
        return None

    async def wait_for_model(self, count: int) -> None:
        with trio.move_on_after(PATIENCE):
            while len(self.contexts) < count:
                await trio.sleep(0.001)

    async def act(self, what: str) -> None:
        raise ValueError(f"a port has no such thing: {what}")
