"""A client that steers, on a session without a port."""

from __future__ import annotations

from typing import Any

import trio

from tests.support.live import Frame
from tests.support.sdk import check_frame
from tests.support.talk import Talk, settled


def steer(talk: Talk, response_id: str, given: Any = "go left", **fields: Any) -> None:
    talk.socket.say({"type": "response.steer", "previous_response_id": response_id, "input": given, **fields})


async def begun(talk: Talk, **fields: Any) -> str:
    """Start a turn and read until it runs; its id."""
    talk.create(**{"input": "go", **fields})
    frame = await talk.socket.hear()
    assert frame["type"] == "response.created", frame
    assert (await talk.socket.hear())["type"] == "response.in_progress"
    response_id: str = frame["response"]["id"]
    return response_id


async def heard(talk: Talk, seconds: float = 0.0) -> list[Frame]:
    """All that has come once so much time has passed; each frame is one that the SDK knows."""
    await trio.sleep(seconds)
    await settled()
    frames = [await talk.socket.hear() for _ in range(talk.socket.unheard)]
    for frame in frames:
        _check(frame)
    return frames


def turns(frames: list[Frame]) -> list[str]:
    """The frames that begin and end turns, and those about steering."""
    kinds = [frame["type"].removeprefix("response.") for frame in frames]
    return [
        kind for kind in kinds if kind in ("created", "completed", "incomplete", "failed", "error") or "steer" in kind
    ]


def named(frames: list[Frame], kind: str) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == f"response.{kind}"]


def _check(frame: Frame) -> None:
    """The SDK's types know the lane of events about steering alone, and what goes back may be no input at all."""
    if frame["type"] == "response.steer.failed":
        check_frame({**frame, "steer": {**frame["steer"], "input": "anything"}})
    elif frame["type"].startswith("response.steer."):
        check_frame(frame)
    else:
        check_frame({name: value for name, value in frame.items() if name != "stream_id"})
