"""Whatever comes in a text frame has one lawful answer, and the socket serves the next one."""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from respserver.config import Mode
from tests.support.fuzz import Fuzz, check_error, check_turn, strict_json, type_of
from tests.support.live import PATIENCE, Frame, Wire, calls_of, open_wire, output, text_of
from tests.support.process import Process, faultless
from tests.support.replay import Replay

SHORT = 300
"""Frames a mode in every run."""
FULL = 50_000
"""Frames a mode with ``--full``; together 100,000."""
SOCKETS = 4
CANARY = 50
"""Frames between two turns that must simply work."""
MAX_PAUSE = 6
"""Frames that a suspended rollout is bothered with before it goes on."""
GROWTH_BYTES = 10e6
"""The frames of the second part are some 100 MB."""


class Fuzzed:
    """One socket under fuzz. It keeps its own account of what is owed: a second, simpler model of the protocol."""

    def __init__(self, wire: Wire, fuzz: Fuzz) -> None:
        self.wire = wire
        self.fuzz = fuzz
        self.seen: set[str] = set()
        """Codes of refusals, types of last events: shows that the fuzz gets everywhere."""
        self._waiting: deque[str] = deque()
        self._open: dict[str, Frame] = {}
        """Calls that the suspended rollout waits for."""
        self._early: deque[Frame] = deque()
        """Events of a rollout that went on before its client had asked for them."""
        self._replay = Replay()
        self._paused_for = 0
        self._fences = 0

    async def run(self, frames: int) -> None:
        """So many frames, each with its answer; the one that has a wrong answer is named."""
        for number in range(frames):
            text = self.fuzz.frame()
            try:
                await self._send(text)
                if self._paused_for > MAX_PAUSE or number % CANARY == CANARY - 1:
                    await self._settle()
                if number % CANARY == CANARY - 1:
                    assert text_of(await self.wire.completed(input="still here")) == "You said: still here"
            except Exception as error:
                where = f"seed {self.fuzz.seed}, frame {number}"
                raise AssertionError(f"{where}: {error!r} after {text[:3000]!r}") from error
        await self._settle()

    async def _send(self, text: str) -> None:
        await self.wire.send(text)
        kind = type_of(text)
        self._paused_for += bool(self._open)
        if kind == "response.create" and not self._open:
            self._waiting.append(text)
            await self._read_answers()
            return
        frames = await self._until_fence()
        # The lane itself has nothing to say while it is suspended.
        if frames and frames[0]["type"] in ("error", "response.steer.failed"):
            self._refused(frames[0])
            assert len(frames) == 1
        elif kind == "response.append":
            self._early.extend(frames)
            await self._appended(json.loads(text))
        elif kind == "response.create":
            self._waiting.append(text)
            assert not frames
        else:
            assert kind == "response.processed", "no answer"
            assert not frames

    async def _appended(self, append: Frame) -> None:
        """An append was taken: the rollout goes on if nothing is missing any more."""
        assert self._open, "an append was taken, and nothing was suspended"
        for item in append["input"]:
            if item.get("type") in ("function_call_output", "custom_tool_call_output"):
                del self._open[item["call_id"]]
        await self._go_on()

    async def _go_on(self) -> None:
        if not self._open:
            await self._read_step([])
            await self._read_answers()

    async def _settle(self) -> None:
        """Let the suspended rollout end, and whatever waits behind it."""
        while self._open:
            answers = [output(call) for call in self._open.values()]
            await self.wire.append(answers)
            self._open.clear()
            await self._go_on()

    async def _read_answers(self) -> None:
        """The answers to all creates that waited, each of which may suspend and let the others wait on."""
        while self._waiting and not self._open:
            self._waiting.popleft()
            first = await self._frame()
            if first["type"] == "error":
                self._refused(first)
            else:
                self._replay = Replay()
                await self._read_step([first])

    async def _read_step(self, frames: list[Frame]) -> None:
        """The events of a turn to its end, or to the pause that it makes."""
        while not frames or (frames[-1]["type"] != "response.done" and not _is_over(frames[-1])):
            frames.append(await self._frame())
        check_turn(frames, self._replay)
        last = frames[-1]
        self.seen.add(last["type"])
        self._paused_for = 0
        self.fuzz.learn(last["response"])
        if last["type"] == "response.done":
            self._open = {call["call_id"]: call for call in calls_of(last["response"])}
            assert set(self._open) == {stub["call_id"] for stub in last["required_input"]}

    async def _until_fence(self) -> list[Frame]:
        """All up to the answer to a frame that is sure to have one at once: messages are read in their order."""
        self._fences += 1
        await self.wire.send({"type": f"fence {self._fences}"})
        frames: list[Frame] = []
        while True:
            frame = await self._frame()
            if frame["type"] == "error" and f"'fence {self._fences}'" in frame["error"]["message"]:
                return frames
            frames.append(frame)

    def _refused(self, frame: Frame) -> None:
        if frame["type"] == "response.steer.failed":
            assert set(frame) == {"type", "sequence_number", "steer", "error"}
            assert set(frame["error"]) == {"type", "code", "message"}
            assert set(frame["steer"]) == {"previous_response_id", "input"}
            self.seen.add(frame["type"])
            return
        assert frame["type"] == "error", frame["type"]
        assert set(frame) - {"headers"} == {"type", "status", "error"}
        check_error(frame["error"], frame["status"])
        self.seen.add(frame["error"]["code"])

    async def _frame(self) -> Frame:
        if self._early:
            return self._early.popleft()
        with trio.fail_after(PATIENCE):
            frame: Frame = strict_json(await self.wire.socket.get_message())
        return frame


def _is_over(frame: Frame) -> bool:
    return frame["type"] in ("response.completed", "response.incomplete", "response.failed")


EVERYWHERE = {
    "invalid_json", "invalid_type", "invalid_value", "unknown_event_type", "missing_required_parameter",
    "unsupported_parameter", "no_tool_call_found", "previous_response_not_found", "response.completed",
}  # fmt: skip
OF_MODE = {
    Mode.SHIPPED: {"no_tool_output_found", "response.steer.failed"},
    Mode.PROTOTYPE: {"response.done", "invalid_append", "response_not_suspended", "response_suspended"},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
async def test_each_frame_has_one_lawful_answer(
    serve: Any, connect: Any, caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    fuzzed = Fuzzed(await connect(await serve(mode=mode)), Fuzz(seed=1))
    await fuzzed.run(SHORT)
    assert fuzzed.seen >= EVERYWHERE | OF_MODE[mode]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
async def test_a_hundred_thousand_frames_leave_the_server_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "8192")  # what is freed goes back at once: only what is kept counts
    limits = ("--store-bytes", "2000000", "--token-cache-bytes", "2000000")
    async with faultless(tmp_path, "--mode", mode.value, *limits) as server:
        memory = psutil.Process(server.process.pid).memory_info
        await fuzz_process(server, FULL // 5, first_seed=1000)
        warm = memory().rss
        await fuzz_process(server, FULL - FULL // 5, first_seed=2000)
        grown = memory().rss - warm
        assert grown < GROWTH_BYTES, f"{grown / 1e6:.1f} MB more than after the first {FULL // 5} frames"


async def fuzz_process(server: Process, frames: int, first_seed: int) -> None:
    """``frames`` of them over a few sockets at once."""

    async def fuzz(seed: int) -> None:
        async with open_wire(server.ready["ws_url"]) as wire:
            await Fuzzed(wire, Fuzz(seed)).run(frames // SOCKETS)

    async with trio.open_nursery() as nursery:
        for number in range(SOCKETS):
            nursery.start_soon(fuzz, first_seed + number)
