"""F21 to F23, F34: the SSE format, flushing and keep-alive, fields of the other transport, framework timers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from respserver.engines.sim import Script, delay, text
from tests.support.live import Wire, http, parse_sse, post, text_of

AWKWARD = "line\nbreak\r\nand \u2028 separator\ndata: not a field\n\nid: 7\n\U0001f30a done"


async def test_f21_sse_wire_format_survives_awkward_text(serve: Any) -> None:
    answer = await post(await serve(Script.of(AWKWARD)), stream=True, input="go")
    body = answer.content
    assert b"\r" not in body
    assert not [line for line in body.split(b"\n") if line.startswith(b"id:")]
    assert body.endswith(b"\n\ndata: [DONE]\n\n")
    frames = parse_sse(body.decode("utf-8"))
    assert text_of(frames[-1]["response"]) == AWKWARD
    assert "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta") == AWKWARD


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_f21_what_is_echoed_of_a_body_in_several_lines_fits_into_one(serve: Any, line_end: str) -> None:
    fields = {
        "model": "sim",
        "input": "go",
        "stream": True,
        "tools": [
            {"type": "web_search", "filters": {"a": [1.50]}},
            {"type": "function", "name": "n", "parameters": {}},
        ],
        "tool_choice": {"type": "function", "name": "n"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    }
    shown = {**fields["text"]["format"], "description": None, "strict": False}  # type: ignore[index]  # a dict
    body = json.dumps(fields, indent=2).replace("\n", line_end)
    async with http(await serve()) as client:
        answer = await client.post("/responses", content=body)
    assert b"\r" not in answer.content
    response = parse_sse(answer.text)[0]["response"]
    assert response["tools"][0] == fields["tools"][0]  # type: ignore[index]  # it is a list
    assert (response["tool_choice"], response["text"]["format"]) == (fields["tool_choice"], shown)


async def test_f21_websocket_carries_one_json_object_per_text_frame_and_no_sse(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of(AWKWARD)))
    await wire.create(input="go")
    while True:
        message = await wire.socket.get_message()
        assert isinstance(message, str)
        frame = json.loads(message)
        if frame["type"] == "response.completed":
            assert text_of(frame["response"]) == AWKWARD
            return


@pytest.mark.slow
async def test_f22_nothing_is_buffered_and_silence_is_filled_with_comments(serve: Any) -> None:
    server = await serve(Script.of([delay(0.6), "at last"]), sse_keepalive_seconds=0.1)
    async with http(server) as client, client.stream("POST", "/responses", json=REQUEST) as answer:
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-length" not in answer.headers
        assert "content-encoding" not in answer.headers
        chunks = answer.aiter_text()
        started = trio.current_time()
        first = await anext(chunks)
        assert first.startswith("event: response.created\n")
        assert trio.current_time() - started < 0.5
        rest = "".join([chunk async for chunk in chunks])
    assert rest.count(": keep-alive\n\n") >= 2
    assert text_of(parse_sse(first + rest)[-1]["response"]) == "at last"


REQUEST = {"model": "sim", "input": "go", "stream": True}


@pytest.mark.parametrize(
    ("field", "value", "strict", "refused"),
    [
        ("stream", True, False, False),
        ("stream_options", {"include_obfuscation": False}, False, False),
        ("background", True, False, True),
        ("stream", True, True, True),
        ("stream_options", {"include_obfuscation": True}, True, True),
        ("background", True, True, True),
    ],
)
async def test_f23_fields_of_http_on_the_socket(
    serve: Any, connect: Any, field: str, value: Any, strict: bool, refused: bool
) -> None:
    wire: Wire = await connect(await serve(strict=strict))
    if not refused:
        frames = await wire.turn(input="go", **{field: value})
        assert frames[-1]["type"] == "response.completed"
        assert not [frame for frame in frames if "obfuscation" in frame]
        return
    error = await wire.refused(input="go", **{field: value})
    assert (error["status"], error["error"]["param"]) == (400, field)


@pytest.mark.parametrize(("field", "value"), [("generate", False), ("stream_id", "x"), ("background", True)])
async def test_f23_fields_of_the_socket_over_http(serve: Any, field: str, value: Any) -> None:
    answer = await post(await serve(), input="go", **{field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


@pytest.mark.slow
async def test_f34_no_framework_timer_cuts_a_stream(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quart's own default is a minute; the same setting at a fraction of a second must not reach our streams."""
    from quart_trio import QuartTrio

    timers = {**QuartTrio.default_config, "RESPONSE_TIMEOUT": 0.2, "BODY_TIMEOUT": 0.2}
    monkeypatch.setattr(QuartTrio, "default_config", timers)
    server = await serve(Script.of([text("a"), delay(0.6), text("b")]))
    frames = parse_sse((await post(server, stream=True, input="go")).text)
    assert text_of(frames[-1]["response"]) == "ab"

    async def slow_body() -> Any:
        body = json.dumps(REQUEST).encode()
        yield body[:10]
        await trio.sleep(0.5)
        yield body[10:]

    async with http(server) as client:
        answer = await client.post("/responses", content=slow_body())
    assert answer.status_code == 200
