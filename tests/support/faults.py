"""Faults, injected from outside: the Nth call of a store, an engine, a classifier, a ledger or a socket goes wrong.

Each wrapper stands where the real thing would and passes everything on, but for the one call that the shared ``Faults``
strikes. The server knows nothing of it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Sequence
from collections.abc import Sequence as Ids
from typing import Any, Literal

import trio

from respserver.engines.base import Batch, SamplingParams
from respserver.engines.base import Sequence as Run
from respserver.engines.sim import Sim
from respserver.ledger.base import TurnRecord
from respserver.ledger.memory import MemoryLedger
from respserver.message_socket import SocketClosed
from respserver.schema.items import InputItem
from respserver.state import ResponseState, StoredItem
from respserver.store.base import Store
from respserver.turn.safety import Verdict
from tests.support.fake_socket import FakeSocket

ERRORS: list[Callable[[], Exception]] = [
    lambda: ValueError("a bug"),
    lambda: OSError(errno.EIO, "the disk is gone"),
    lambda: trio.BrokenResourceError("the other service is gone"),
    lambda: ExceptionGroup("two tasks", [OSError("one"), ValueError("two")]),
]
"""What a part that somebody plugged in may raise."""


class Faults:
    """Counts calls, from 1; the ``nth`` raises what ``error`` makes. 0 lets every call pass.

    ``struck`` names the call that was hit, or is None.
    """

    def __init__(self, nth: int, error: Callable[[], Exception]) -> None:
        self.calls = 0
        self.struck: str | None = None
        self._nth = nth
        self.error = error

    def strikes(self, place: str) -> bool:
        """Count a call; whether it is the one."""
        self.calls += 1
        if self.calls != self._nth:
            return False
        self.struck = place
        return True

    async def reach(self, place: str) -> None:
        """A call has come to where it may go wrong."""
        if self.strikes(place):
            raise self.error()


class Departure(Faults):
    """In the middle of the Nth call, which takes for ever, the client goes: ``leave`` is called."""

    def __init__(self, nth: int) -> None:
        super().__init__(nth, AssertionError)
        self.leave: Callable[[], None] = lambda: None

    async def reach(self, place: str) -> None:
        if self.strikes(place):
            self.leave()
            await trio.sleep_forever()


class FaultyStore:
    """Passes calls on to ``inner``. A ``late`` fault strikes after the call has done its work.

    ``saved`` has the states that were to be kept.
    """

    def __init__(self, inner: Store, faults: Faults, *, late: bool = False) -> None:
        self.saved: list[ResponseState] = []
        self._inner = inner
        self._faults = faults
        self._late = late

    async def load(self, response_id: str, tenant: str) -> ResponseState | None:
        await self._before("load")
        state = await self._inner.load(response_id, tenant)
        await self._after("load")
        return state

    async def load_chain(self, response_id: str, tenant: str) -> list[ResponseState] | None:
        await self._before("load_chain")
        states = await self._inner.load_chain(response_id, tenant)
        await self._after("load_chain")
        return states

    async def touch(self, response_id: str, tenant: str) -> bool:
        await self._before("touch")
        found = await self._inner.touch(response_id, tenant)
        await self._after("touch")
        return found

    async def load_item(self, item_id: str, tenant: str) -> StoredItem | None:
        await self._before("load_item")
        item = await self._inner.load_item(item_id, tenant)
        await self._after("load_item")
        return item

    async def save(self, state: ResponseState) -> None:
        self.saved.append(state)
        await self._before("save")
        await self._inner.save(state)
        await self._after("save")

    async def delete(self, response_id: str, tenant: str) -> bool:
        await self._before("delete")
        is_gone = await self._inner.delete(response_id, tenant)
        await self._after("delete")
        return is_gone

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _before(self, call: str) -> None:
        if not self._late:
            await self._faults.reach(f"store.{call}")

    async def _after(self, call: str) -> None:
        if self._late:
            await self._faults.reach(f"store.{call}")


class FaultyEngine:
    """Opens the sim's runs, each wrapped in a ``FaultyRun``."""

    name = "sim"
    gives_logprobs = False

    def __init__(self, inner: Sim, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def runs_open(self) -> int:
        """Runs that were opened and not closed."""
        return self._inner.sequences_open

    async def open(self) -> Run:
        await self._faults.reach("engine.open")
        return FaultyRun(await self._inner.open(), self._faults)

    async def aclose(self) -> None:
        await self._inner.aclose()


class FaultyRun:
    """An engine's open run. A close that goes wrong has freed it all the same."""

    def __init__(self, inner: Run, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def extend(self, ids: Ids[int]) -> None:
        await self._faults.reach("run.extend")
        await self._inner.extend(ids)

    async def next(self, params: SamplingParams) -> Batch:
        await self._faults.reach("run.next")
        return await self._inner.next(params)

    async def discard(self, count: int) -> None:
        await self._faults.reach("run.discard")
        await self._inner.discard(count)

    async def fork(self) -> Run:
        await self._faults.reach("run.fork")
        return FaultyRun(await self._inner.fork(), self._faults)

    async def aclose(self) -> None:
        await self._inner.aclose()
        await self._faults.reach("run.aclose")


class FaultyClassifier:
    """Lets everything pass."""

    def __init__(
        self, faults: Faults, when: Literal["before", "beside"], reads: Literal["new", "context"] = "new"
    ) -> None:
        self.name = f"faulty, {when}"
        self.when: Literal["before", "beside"] = when
        self.reads: Literal["new", "context"] = reads
        self._faults = faults

    async def screen(self, items: Sequence[InputItem], verdict: Verdict) -> Verdict:
        await trio.lowlevel.checkpoint()
        await self._faults.reach(f"classifier.{self.when}")
        return Verdict()

    async def aclose(self) -> None:
        pass


class FaultyLedger(MemoryLedger):
    """Writes all of a batch or, when it is struck, nothing."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(1_000_000)
        self._faults = faults

    async def write(self, records: list[TurnRecord]) -> None:
        await self._faults.reach("ledger.write")
        await super().write(records)


class FaultySocket(FakeSocket):
    """Struck with ``SocketClosed``, it is broken for good, as by a peer's reset; any other error is a socket's own bug.

    ``frames`` has all that was written, ``fault`` the bug.
    """

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.is_broken = False
        self.frames: list[dict[str, Any]] = []
        self.fault: Exception | None = None
        self._faults = faults

    def send_many(self, messages: Sequence[bytes]) -> None:
        self._strike("socket.send_many")
        super().send_many(messages)
        self.frames += map(json.loads, messages)

    async def drain(self) -> None:
        await super().drain()
        self._strike("socket.drain")

    async def close(self, code: int, reason: str = "") -> None:
        if not self.is_broken:
            await super().close(code, reason)

    def _strike(self, place: str) -> None:
        if self.is_broken:
            raise SocketClosed
        if not self._faults.strikes(place):
            return
        error = self._faults.error()
        if isinstance(error, SocketClosed):
            self.is_broken = True
            self._to_server.close()
            self._to_client.close()
        else:
            self.fault = error
        raise error
