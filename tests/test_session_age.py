"""F26 with several lanes: the greatest age of a connection is one for all of them, and each lane ends in its order."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from respserver.engines.sim import Script, delay
from tests.support.live import Frame
from tests.support.talk import Talk, services, settled

LIMIT = "websocket_connection_limit_reached"
AGE = 60.0
LANES = ["a", "b", None]
LATE = Script.of([delay(AGE + 5), "fine"], on_end="repeat")
"""A model that is through five seconds after the limit."""


def named(lane: str | None) -> dict[str, str]:
    return {} if lane is None else {"stream_id": lane}


def of_lane(frames: list[Frame], lane: str | None) -> list[str]:
    """The ends of a lane's turns: types, or the codes of errors."""
    own = [frame for frame in frames if frame.get("stream_id") == lane]
    ends = [frame for frame in own if frame["type"] in ("error", "response.completed", "response.failed")]
    return [frame["error"]["code"] if frame["type"] == "error" else frame["type"] for frame in ends]


async def rest(talk: Talk) -> list[Frame]:
    """All frames to the end of the connection."""
    frames = []
    try:
        while True:
            frames.append(await talk.socket.hear())
    except trio.EndOfChannel:
        return frames


@pytest.mark.parametrize("grace", [10.0, 0.0], ids=["in time", "too late"])
async def test_f26_each_lane_has_its_grace_and_those_that_wait_are_refused_in_their_lane(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, grace: float
) -> None:
    talk = Talk(nursery, services(LATE, connection_seconds=AGE, grace_seconds=grace))
    for lane in LANES:
        talk.create(input="go", **named(lane))
    talk.create(input="waits", **named("a"))
    await trio.sleep(AGE - 1)
    before = [await talk.socket.hear() for _ in range(talk.socket.unheard)]
    assert [of_lane(before, lane) for lane in LANES] == [[], [], []]
    began = trio.current_time()
    if grace:
        await trio.sleep(2)
        for lane in ("b", "c"):
            talk.create(input="comes too late", **named(lane))
    frames = await rest(talk)
    end = "response.completed" if grace else "response.failed"
    assert of_lane(frames, "a") == [end, LIMIT]
    assert of_lane(frames, "b") == ([end, LIMIT] if grace else [end])
    assert of_lane(frames, None) == [LIMIT, end]  # the one that nobody asked for names no lane
    assert of_lane(frames, "c") == ([LIMIT] if grace else [])
    assert frames[0]["error"]["message"].startswith("Responses websocket connection limit reached (1 minutes).")
    for frame in frames:
        if frame["type"] == "response.failed":
            assert frame["response"]["error"]["code"] == LIMIT
    assert talk.socket.code == 1001
    assert trio.current_time() - began <= 1 + grace


async def test_f26_idle_lanes_hear_of_the_limit_once_and_the_socket_closes_at_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(Script.of("fine", on_end="repeat"), connection_seconds=AGE, grace_seconds=10.0))
    for lane in LANES:
        assert (await talk.turn(input="go", **named(lane)))["type"] == "response.completed"
    began = trio.current_time()
    frames = await rest(talk)
    assert [frame["type"] for frame in frames] == ["error"]
    assert "stream_id" not in frames[0]
    assert trio.current_time() - began == pytest.approx(AGE, abs=1.0)
    await settled()
    assert talk.socket.code == 1001
