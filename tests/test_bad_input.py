"""Bad input that only shows over a socket: each has its documented error, and the connection or the server goes on.

Single rules are tested where they live (``test_schema_*``, ``test_protocol_*``, ``test_transport_*``); this file is
about what every entry does with them. Frames that flood are in ``test_floods.py``.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import trio
import zstandard

from respserver.schema.request import CreateParams
from tests.support.fuzz import check_error
from tests.support.http_host import POST, hosted, quart_app
from tests.support.live import ENDS, PATIENCE, TERMINALS, Wire, http, text_of
from tests.support.process import Process
from tests.support.raw_websocket import RawClient
from tests.support.roads import raw_connection

# ------------------------------------------------------------------------------------------- wrong types everywhere

SAMPLES = {
    "number": "20",
    "string": '"zzz"',
    "boolean": "true",
    "array": "[20]",
    "object": '{"zzz": [20]}',
    "huge integer": "1" + "0" * 400,
    "infinite": "1e999",
}
"""One value of each kind as text, and two numbers that are none."""
FIELDS = [*CreateParams.__struct_fields__, "input", "tools"]
STRINGS = ("model", "instructions", "prompt_cache_key", "safety_identifier", "user", "input")
BOOLEANS = ("store", "stream", "generate", "parallel_tool_calls")
OBJECTS = (
    *("stream_options", "text", "reasoning", "prompt_cache_options"),
    *("access_programs", "background_options", "image", "multi_agent"),
)
TAKEN: dict[str, set[str]] = {
    **{name: {"string"} for name in STRINGS},
    **{name: {"boolean"} for name in BOOLEANS},
    **{name: {"object"} for name in OBJECTS},
    **{name: {"number"} for name in ("max_tool_calls", "max_output_tokens", "top_logprobs")},
    "client_metadata": set(SAMPLES),
    "stream_id": {"string"},
}
"""Samples that are no fault in their field; every other field refuses all of them."""
TAKEN_OVER_HTTP = {**TAKEN, "type": {"string"}, "generate": set[str](), "stream_id": set[str]()}


def create_with(name: str, raw: str) -> str:
    """The text of a create whose field ``name`` is the JSON ``raw``."""
    others = {"type": "response.create", "model": "sim", "input": "hi"}
    fields = [f'"{other}": {json.dumps(value)}' for other, value in others.items() if other != name]
    return "{" + ", ".join([*fields, f'"{name}": {raw}']) + "}"


@pytest.mark.parametrize("name", FIELDS)
async def test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_field(
    serve: Any, connect: Any, name: str
) -> None:
    server = await serve()
    wire: Wire = await connect(server)
    taken: set[str] = set()
    taken_over_http: set[str] = set()
    async with http(server) as client:
        for kind, raw in SAMPLES.items():
            await wire.send(create_with(name, raw))
            while True:
                last = await wire.receive()  # on whatever lane
                if last["type"] in ENDS:
                    break
            if last["type"] == "error":
                check_named(last["error"], last["status"], name)
            else:
                taken.add(kind)
            answer = await client.post("/responses", content=create_with(name, raw))
            if answer.status_code != 200:
                check_named(answer.json()["error"], answer.status_code, name)
            else:
                taken_over_http.add(kind)
    assert taken == TAKEN.get(name, set())
    assert taken_over_http == TAKEN_OVER_HTTP.get(name, set())
    assert text_of(await wire.completed(input="still here")) == "You said: still here"


def check_named(error: dict[str, Any], status: int, name: str) -> None:
    check_error(error, status)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert re.fullmatch(rf"{name}([.\[].*)?", error["param"]), error


# -------------------------------------------------------------------------------------------------------- nesting

PLACES = {
    "an item": '"input": [{"type": "zzz", "a": DEEP}]',
    "a part": '"input": [{"role": "user", "content": [{"type": "input_zzz", "a": DEEP}]}]',
    "an output": '"input": [{"type": "function_call_output", "call_id": "c", "output": DEEP}]',
    "added tools": '"input": [{"type": "additional_tools", "tools": [{"type": "zzz", "a": DEEP}]}]',
    "a hosted tool": '"input": "hi", "tools": [{"type": "zzz", "a": DEEP}]',
    "a schema": '"input": "hi", "tools": [{"type": "function", "name": "n", "parameters": {"a": DEEP}}]',
    "beside a schema": '"input": "hi", "tools": [{"type": "function", "name": "get_n", "zzz": DEEP}]',
    "a namespace": '"input": "hi", "tools": [{"type": "namespace", "name": "n", "tools": DEEP}]',
    "a format": '"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"a": DEEP}}}',
    "beside a format": '"input": "hi", "text": {"format": {"type": "json_object", "zzz": DEEP}}',
    "a choice": '"input": "hi", "tools": [{"type": "function", "name": "n"}],'
    ' "tool_choice": {"type": "function", "name": "n", "zzz": DEEP}',
    "metadata": '"input": "hi", "metadata": {"a": DEEP}',
    "an unknown field": '"input": "hi", "zzz": DEEP',
}
DEPTHS = [98, 99, 100, 101, 199, 202, *range(860, 1001, 9), 30_000]
"""Around the documented bound, around Python's greatest recursion wherever it is met, and far beyond."""
_TYPE = re.compile(r'\{"type":"([^"]+)"')


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_nesting_of_any_depth_is_served_or_refused_wherever_it_stands(
    serve: Any, connect: Any, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    server = await serve()
    wire: Wire = await connect(server)
    refused: list[int] = []
    async with http(server) as client:
        for depth in DEPTHS:
            deep = "[" * depth + "\n" + "]" * depth
            fields = '"model": "sim", ' + PLACES[place].replace("DEEP", deep)
            await wire.send('{"type": "response.create", ' + fields + "}")
            refused += [depth] * await is_refused(wire)
            answer = await client.post("/responses", content="{" + fields + "}")
            if answer.status_code != 200:
                check_error(answer.json()["error"], answer.status_code)
    assert refused[-1] == 30_000
    assert text_of(await wire.completed(input="still here")) == "You said: still here"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def is_refused(wire: Wire) -> bool:
    """Whether the next answer is an error. What it echoes may be nested too deeply for us to read."""
    while True:
        with trio.fail_after(PATIENCE):
            text = await wire.socket.get_message()
        assert isinstance(text, str)
        found = _TYPE.match(text)
        assert found is not None
        if found[1] == "error":
            frame = json.loads(text)
            check_error(frame["error"], frame["status"])
            return True
        assert found[1] != "response.failed"
        if found[1] in TERMINALS:
            return False


# ----------------------------------------------------------------------------------------------------------- HTTP

BODY = b'{"model":"sim","input":"hi"}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def post_head(*fields: bytes) -> bytes:
    return b"POST /v1/responses HTTP/1.1\r\nHost: x\r\n" + b"".join(fields) + b"\r\n"


def get(target: bytes) -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (post_head(b"Content-Length: abc\r\n") + BODY, 400, "invalid_request"),
        (post_head(b"Content-Length: -1\r\n") + BODY, 400, "invalid_request"),
        (post_head(b"Content-Length: 1%s\r\n" % (b"0" * 30)) + BODY, 400, "invalid_request"),
        (post_head(b"Content-Length: 100000000\r\n") + BODY, 413, "payload_too_large"),
        (post_head(LENGTH, b"Content-Length: 5\r\n") + BODY, 400, "invalid_request"),
        (post_head(CHUNKED) + b"zz\r\n" + BODY, 400, "invalid_request"),
        (post_head(CHUNKED) + b"-1\r\n" + BODY, 400, "invalid_request"),
        (post_head(), 400, "invalid_json"),
        (post_head(LENGTH, b"Host: y\r\n") + BODY, 400, "invalid_request"),
        (post_head(LENGTH, b"A : b\r\n") + BODY, 400, "invalid_request"),
        (post_head(LENGTH, b"A: \x00\r\n") + BODY, 400, "invalid_request"),
        (post_head(LENGTH, b"Content-Encoding: \xff\r\n") + BODY, 415, "unsupported_content_encoding"),
        (b"BREW /v1/responses HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"),
        (get(b"/v1/responses/%00"), 404, "response_not_found"),
        (get(b"/v1/responses/%ff%fe"), 404, "response_not_found"),
        (get(b"/v1/responses/%ed%a0%80"), 404, "response_not_found"),
        (get(b"/v1/responses/" + b"r" * 50_000), 404, "response_not_found"),
        (get(b"/v1/responses/%2e%2e%2fmodels"), 404, "unknown_url"),
        (get(b"/v1/responses/x?stream=%ff&%00=%"), 404, "response_not_found"),
    ],
    ids=lambda value: str(value)[-30:],
)
async def test_a_request_that_is_no_good_is_refused_in_json_and_others_are_served(
    serve: Any, caplog: pytest.LogCaptureFixture, sent: bytes, status: int, code: str
) -> None:
    server = await serve()
    async with raw_connection(server) as client:
        await client.stream.send_all(sent)
        head = await client.head()
        body = await client.take(int(re.findall(rb"content-length: (\d+)", head.lower())[0]))
    assert int(head.split()[1]) == status
    error = json.loads(body)["error"]
    check_error(error, status)
    assert error["code"] == code
    async with http(server) as other:
        assert (await other.post("/responses", content=BODY)).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_requests_in_one_packet_are_answered_one_by_one_in_their_order(serve: Any) -> None:
    bodies = [BODY, b"{broken", BODY.replace(b"hi", b"ho"), b"[]", BODY]
    packet = b"".join(post_head(b"Content-Length: %d\r\n" % len(body)) + body for body in bodies)
    said: list[tuple[int, str]] = []
    async with raw_connection(await serve()) as client:
        await client.stream.send_all(packet)
        for _ in bodies:
            head = await client.head()
            size = int(re.findall(rb"content-length: (\d+)", head.lower())[0])
            answer = json.loads(await client.take(size))
            said.append((int(head.split()[1]), answer["error"]["code"] if answer.get("error") else text_of(answer)))
    hi, broken = (200, "You said: hi"), (400, "invalid_json")
    assert said == [hi, broken, (200, "You said: ho"), broken, hi]


@pytest.mark.slow
async def test_a_body_that_stalls_is_answered_408_and_one_that_drips_is_served() -> None:
    async with hosted(quart_app(), keep_alive_seconds=0.3) as (_, stream):
        await stream.send_all(POST[:-1])
        with trio.fail_after(3):
            assert (await RawClient(stream).rest()).startswith(b"HTTP/1.1 408 ")
    async with hosted(quart_app(), keep_alive_seconds=0.3) as (_, stream):
        for byte in POST[:-4], b"b", b"o", b"d", b"y":
            await stream.send_all(byte)
            await trio.sleep(0.15)
        assert (await RawClient(stream).head()).startswith(b"HTTP/1.1 200")


# ---------------------------------------------------------------------------------------------------------- bombs

INFLATED = 100_000_000
BOMBS = 2
SPACE = 90e6
"""A few times the limit; one bomb whole would be more."""


@pytest.mark.slow
@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
async def test_bombs_are_413_before_they_fill_the_memory(
    tmp_path: Path, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    bomb = compress(bytes(INFLATED))
    server = await trio.to_thread.run_sync(Process, tmp_path)
    try:
        before = psutil.Process(server.process.pid).memory_info().rss
        async with httpx.AsyncClient(base_url=server.ready["base_url"], timeout=PATIENCE) as client:
            statuses: list[int] = []

            async def send() -> None:
                answer = await client.post("/responses", content=bomb, headers={"Content-Encoding": coding})
                statuses.append(answer.status_code)

            async with trio.open_nursery() as nursery:
                for _ in range(BOMBS):
                    nursery.start_soon(send)
            assert statuses == [413] * BOMBS
            assert (await client.post("/responses", content=BODY)).status_code == 200
        status = Path(f"/proc/{server.process.pid}/status")
        if status.exists():  # the greatest size so far is only told there
            peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) * 1024
            assert peak - before < SPACE
    finally:
        server.stop()
