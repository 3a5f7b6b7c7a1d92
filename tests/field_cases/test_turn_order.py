"""F07, F09: creates wait their turn, and every turn is framed. F19: refusals stand alone."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.sim import Script, delay
from tests.support.live import TERMINALS, Wire, post, text_of

ECHO = Script.of("one", "two", "three", on_end="repeat")


async def test_f07_creates_sent_early_wait_their_turn(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve())
    for text in ("one", "two", "three"):
        await wire.create(input=text)
    turns = [await wire.frames() for _ in range(3)]
    assert [text_of(turn[-1]["response"]) for turn in turns] == [f"You said: {t}" for t in ("one", "two", "three")]
    for turn in turns:
        assert turn[0]["type"] == "response.created"
        ids = {frame["response"]["id"] for frame in turn if "response" in frame}
        assert len(ids) == 1


async def test_f07_the_waiting_list_is_bounded_and_full_means_an_answer(serve: Any, connect: Any) -> None:
    script = Script.of([delay(0.2), "slow"], on_end="repeat")
    wire: Wire = await connect(await serve(script, limits={"queued_creates": 2}))
    for _ in range(5):
        await wire.create(input="go")
    early = [await wire.frame() for _ in range(4)]
    errors = [frame for frame in early if frame["type"] == "error"]
    assert [(error["status"], error["error"]["code"]) for error in errors] == [(429, "queue_full")] * 2
    assert errors[0]["headers"] == errors[0]["error"]["headers"] == {"retry-after": "1"}
    rest = [await wire.frames() for _ in range(3)]
    assert [turn[-1]["type"] for turn in rest] == ["response.completed"] * 3
    await wire.completed(input="after")


async def test_f09_a_turn_is_framed(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(ECHO))
    await wire.create(input="a")
    await wire.create(input=42)
    await wire.create(input="b")
    frames = await wire.frames() + await wire.frames() + await wire.frames()
    types = [frame["type"] for frame in frames]
    assert types.count("response.created") == 2
    assert [kind for kind in types if kind in TERMINALS | {"error"}] == [
        "response.completed",
        "error",
        "response.completed",
    ]
    assert types[0] == "response.created"
    assert types[types.index("error") + 1] == "response.created"
    assert "response.done" not in types


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": None}, "missing_required_parameter", "model"),
        ({"model": "nobody"}, "model_not_found", "model"),
        ({"input": 42}, "invalid_type", "input"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "invalid_value", "input[0].role"),
    ],
)
async def test_f19_refusal_before_a_turn_starts(
    serve: Any, connect: Any, fields: dict[str, Any], code: str, param: str
) -> None:
    server = await serve(ECHO, strict_models=True, model=("sim",))
    wire: Wire = await connect(server)
    error = await wire.refused(**{"input": "hi", **fields})
    assert error["status"] == 400
    assert (error["error"]["code"], error["error"]["param"]) == (code, param)
    assert error["error"]["type"] == "invalid_request_error"
    await wire.completed(input="next")
    for stream in (True, False):
        answer = await post(server, **{"input": "hi", "stream": stream, **fields})
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"] == error["error"]
