"""``obfuscation``: the server's option decides, and a request that says something explicit overrules it."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.sim import Script, call, custom, reasoning, refusal, text
from tests.support.live import Frame, Wire, post, stream, tool
from tests.support.sdk import check_event

EVERYTHING = Script.of(
    [reasoning("hm, so"), text("some words"), refusal("not this"), call("look", n=1), custom("patch", "a b")],
    on_end="repeat",
)
FIELDS: dict[str, Any] = {
    "input": "go",
    "tools": [tool("look"), {"type": "custom", "name": "patch"}],
    "reasoning": {"summary": "auto"},
}


async def play(server: Any, connect: Any, transport: str, **fields: Any) -> list[Frame]:
    if transport == "sse":
        return await stream(server, **FIELDS, **fields)
    wire: Wire = await connect(server)
    return await wire.turn(**FIELDS, **fields)


@pytest.mark.parametrize("transport", ["websocket", "sse"])
@pytest.mark.parametrize("option", [False, True])
@pytest.mark.parametrize("asked", [None, {}, {"include_obfuscation": None}, True, False], ids=str)
async def test_who_decides(serve: Any, connect: Any, transport: str, option: bool, asked: Any) -> None:
    options = {"include_obfuscation": asked} if isinstance(asked, bool) else asked
    server = await serve(EVERYTHING, obfuscation=option)
    frames = await play(server, connect, transport, stream_options=options)
    padded = {frame["type"] for frame in frames if "obfuscation" in frame}
    deltas = {frame["type"] for frame in frames if frame["type"].endswith(".delta")}
    assert len(deltas) == 5
    assert padded == (deltas if (option if not isinstance(asked, bool) else asked) else set())
    for frame in frames:
        check_event(frame)
        if "obfuscation" in frame:
            assert (len(frame["delta"]) + len(frame["obfuscation"])) % 16 == 0


async def test_paddings_are_not_the_same(serve: Any, connect: Any) -> None:
    frames = await play(await serve(EVERYTHING), connect, "sse", stream_options={"include_obfuscation": True})
    paddings = [frame["obfuscation"] for frame in frames if len(frame.get("obfuscation", "")) > 8]
    assert len(set(paddings)) == len(paddings) > 1


async def test_an_answer_that_is_no_stream_has_none(serve: Any) -> None:
    answer = await post(
        await serve(EVERYTHING, obfuscation=True), **FIELDS, stream_options={"include_obfuscation": True}
    )
    assert "obfuscation" not in answer.text


async def test_a_strict_server_takes_no_stream_options_on_a_socket(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(EVERYTHING, strict=True))
    error = await wire.refused(input="go", stream_options={"include_obfuscation": True})
    assert (error["error"]["code"], error["error"]["param"]) == ("unsupported_parameter", "stream_options")
