"""Steering where it touches something else: a warm-up that breaks, the end of a connection, sizes, old responses."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import trio
import trio.testing

from respserver.engines.sim import Script, call, delay, reasoning, step
from respserver.errors import ModelFault
from respserver.protocol.steering import MAX_ENDED
from respserver.session import Session
from tests.support.fake_socket import FakeSocket
from tests.support.live import Frame, calls_of, output, text_of, tool
from tests.support.spy import Spy
from tests.support.steering import begun, heard, named, steer, turns
from tests.support.talk import Talk, services, settled

OWING = Script.of(step(call("first", where="at the pier"), tps=1.0), "left then", on_end="repeat")
STOPPED = Script.of([reasoning("Hm."), delay(5), "never said"], "left then")
SECONDS = 8.5
"""The model is in the middle of its call then."""


async def owed(talk: Talk, **fields: Any) -> tuple[Frame, Frame]:
    """A response that owes an output and has been steered: itself, and ``response.steer.pending``."""
    target = await begun(talk, tools=[tool("first")], **fields)
    await heard(talk, SECONDS)
    steer(talk, target, "one")
    frames = await heard(talk, 60)
    return named(frames, "completed")[0]["response"], named(frames, "steer.pending")[0]


async def test_a_warm_up_that_fails_gives_back_what_waits_for_it(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(nursery, services(OWING))
    response, _ = await owed(talk)
    outputs = [output(made) for made in calls_of(response)]

    async def broken(spy: Spy, ids: list[int]) -> None:
        raise ModelFault("broke")

    with monkeypatch.context() as patch:
        patch.setattr(Spy, "pass_gate", broken)
        talk.create(previous_response_id=response["id"], input=outputs, generate=False)
        frames = await heard(talk)
    assert turns(frames) == ["created", "failed", "steer.failed"]
    assert frames[-1]["steer"]["input"] == "one"
    talk.create(previous_response_id=response["id"], input=outputs)  # the parent is stored
    assert turns(await heard(talk, 5)) == ["created", "completed"]


async def test_a_connection_at_its_end_takes_no_steering_and_lets_the_answer_come_to_its_end(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(STOPPED, grace_seconds=30.0))
    target = await begun(talk)
    await settled()
    talk.stop.set()
    await settled()
    steer(talk, target)
    frames = [await talk.socket.hear()]
    while frames[-1]["type"] != "response.completed":
        frames.append(await talk.socket.hear())
    (failed,) = named(frames, "steer.failed")
    assert failed["error"]["code"] == "successor_creation_failed"
    assert text_of(frames[-1]["response"]) == "never said"


async def test_an_image_over_the_limit_does_not_steer(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(STOPPED, media_bytes=1000))
    target = await begun(talk)
    await settled()
    image = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 1000).decode()
    steer(talk, target, [{"role": "user", "content": [{"type": "input_image", "image_url": image}]}])
    frames = await heard(talk, 10)
    assert turns(frames) == ["steer.failed", "completed"]
    error = named(frames, "steer.failed")[0]["error"]
    assert error["code"] == "invalid_input"
    assert error["message"].startswith("Invalid 'input[0].content[0]': the image has 1008 bytes.")


async def test_the_numbers_of_a_response_go_on_however_many_have_ended_since(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(OWING))
    response, pending = await owed(talk)
    for _ in range(MAX_ENDED + 5):
        await talk.turn(input="another chain", generate=False)
    talk.create(previous_response_id=response["id"], input="on")
    error, failed = await heard(talk)
    assert error["error"]["code"] == "no_tool_output_found"
    assert failed["sequence_number"] == pending["sequence_number"] + 1


@pytest.mark.parametrize("store", [True, False])
async def test_input_comes_back_once_nobody_can_bring_the_outputs_it_waits_for(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, store: bool
) -> None:
    """Else the lane's room for steering would be used up for good."""
    talk = Talk(nursery, services(OWING, pending_steers=1))
    response, _ = await owed(talk, store=store)
    talk.create(input="another chain", generate=False, store=False)
    frames = await heard(talk)
    assert turns(frames) == ["created", "completed", *([] if store else ["steer.failed"])]
    again = await begun(talk, tools=[tool("first")])
    await heard(talk, SECONDS)
    steer(talk, again)
    (answer,) = await heard(talk)
    assert answer["type"] == ("response.steer.failed" if store else "response.steer.accepted")
    talk.create(previous_response_id=response["id"], input=[output(made) for made in calls_of(response)])
    frames = await heard(talk, 60)
    assert turns(frames)[-2:] == (["created", "completed"] if store else ["steer.pending", "error"])


class Behind(FakeSocket):
    """Its client reads nothing: whoever drains waits. ``taken`` counts the messages that the session has read."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    async def receive(self) -> str:
        message = await super().receive()
        self.taken += 1
        return message

    async def drain(self) -> None:
        await trio.sleep_forever()


async def test_a_flood_of_wrong_steering_waits_for_its_reader(nursery: trio.Nursery) -> None:
    socket = Behind()
    nursery.start_soon(Session(socket, services(), tenant="default", stop=trio.Event()).run)
    for _ in range(20):
        socket.say({"type": "response.steer", "previous_response_id": "resp_nowhere", "input": "a lot"})
    await settled()
    assert (socket.taken, socket.unheard) == (1, 1)
    socket.leave()
    nursery.cancel_scope.cancel()
