"""A raw client's socket with several lanes on it, each waited for by a task of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import trio

from tests.support.live import Frame, Wire


class LaneWires:
    """Sorts what comes on one socket by ``stream_id``; None is the default lane. No task reads for the others: whoever
    waits reads on, and puts aside what is not its own."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.arrived: list[Frame] = []
        """Every frame as it came, of all lanes."""
        self._put_aside: dict[str | None, deque[Frame]] = {}
        self._turn = trio.Lock()

    def lane(self, name: str | None) -> LaneWire:
        """A lane's end of the socket. A frame for a lane that nobody has asked for is an ``AssertionError``."""
        self._put_aside.setdefault(name, deque())
        return LaneWire(self, name)

    def lanes(self, *names: str | None) -> list[LaneWire]:
        """The ends of several."""
        return [self.lane(name) for name in names]

    def place(self, kind: str, name: str | None) -> int:
        """Where among all frames the lane's first one of this type stands."""
        return [(frame["type"], frame.get("stream_id")) for frame in self.arrived].index((kind, name))

    async def frame_of(self, name: str | None) -> Frame:
        mine = self._put_aside[name]
        while not mine:
            async with self._turn:  # fair: who reads on lets go after each frame
                if not mine:
                    frame = await self.wire.receive()
                    lane = frame.get("stream_id")
                    assert lane in self._put_aside, f"a frame of lane {lane!r}: {frame}"
                    self.arrived.append(frame)
                    self._put_aside[lane].append(frame)
        return mine.popleft()


class LaneWire(Wire):
    """One lane: only its own frames are received."""

    def __init__(self, wires: LaneWires, name: str | None) -> None:
        super().__init__(wires.wire.socket, name)
        self._wires = wires

    async def receive(self) -> Frame:
        return await self._wires.frame_of(self.lane)

    async def aclose(self) -> None:
        """Hang up: the whole socket is gone, with its other lanes."""
        await self._wires.wire.socket.aclose()


async def begun(lanes: Iterable[Wire]) -> list[list[Frame]]:
    """The first two frames of a turn on each lane: its parent is bound."""
    frames = [[await lane.frame(), await lane.frame()] for lane in lanes]
    for two in frames:
        assert [frame["type"] for frame in two] == ["response.created", "response.in_progress"], two
    return frames
