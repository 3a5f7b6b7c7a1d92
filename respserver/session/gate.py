"""How the lanes of a connection share the event loop, so that many of them get no more of it than one."""

from __future__ import annotations

import trio

from respserver.protocol.lane import Lane


class Gate:
    """Lets one turn of a connection go on in each pass of Trio's scheduler, lane after lane.

    All tasks that are ready run once in a pass. So while every model has a batch of tokens ready, a connection with
    sixteen lanes works off one batch for each batch of its neighbour's, and its lanes do so in turn. A lane that is
    alone passes without a checkpoint.
    """

    def __init__(self) -> None:
        self._last: Lane | None = None
        """The lane that passed last. It has been in the scheduler since, if it comes again."""
        self._is_taken = False
        """Whether the next pass is somebody's already; only then does anybody stand in line."""
        self._line = trio.lowlevel.ParkingLot()

    def lets_pass(self, lane: Lane) -> bool:
        """Whether a lane need not wait at all: it is alone."""
        return self._last is lane and not self._is_taken

    async def enter(self, lane: Lane) -> None:
        """Wait for a pass in which no other lane goes on."""
        if self._is_taken:
            await self._line.park()
        elif self._last is lane:
            return
        else:
            # Another lane has passed, maybe in this very pass, and nothing tells: the next one is free for certain.
            self._is_taken = True
            await trio.lowlevel.cancel_shielded_checkpoint()  # nobody else would take the line on
        self._last = lane
        self._is_taken = bool(self._line.unpark(count=1))  # who is woken now runs in the next pass
