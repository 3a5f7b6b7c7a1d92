"""Whatever is posted has one lawful answer, a whole response or a 4xx, and the connection serves the next one."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import zstandard

from tests.support.fuzz import Fuzz, check_end, check_error, check_turn, strict_json
from tests.support.live import http, parse_sse
from tests.support.process import faultless

SHORT = 200
FULL = 5000
CANARY = 50
"""Bodies between two requests that must simply work."""
CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("zstd", zstandard.compress),
    ("zstd", lambda body: zstandard.compress(body)[:-3]),
    ("gzip", lambda body: gzip.compress(body) + b"\0\0"),
    ("gzip", bytes),
    ("br", bytes),
    ("gzip, zstd", bytes),
]
CONTENT_TYPES = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "?", ""]
EVERYWHERE = {"json", "sse", "invalid_json", "invalid_type", "missing_required_parameter", "invalid_body"}


async def fuzz_server(server: Any, seed: int, bodies: int) -> set[str]:
    """So many requests on few connections. What they were answered with: shows that the fuzz gets everywhere."""
    fuzz = Fuzz(seed)
    seen: set[str] = set()
    async with http(server) as client:
        for number in range(bodies):
            body, headers = dressed(fuzz)
            try:
                seen.add(check_answer(await client.post("/responses", content=body, headers=headers), fuzz))
                if number % CANARY == CANARY - 1:
                    answer = await client.post("/responses", json={"model": "sim", "input": "still here"})
                    assert answer.json()["output"][0]["content"][0]["text"] == "You said: still here"
            except Exception as error:
                where = f"seed {seed}, body {number}, {headers}"
                raise AssertionError(f"{where}: {error!r} after {body[:3000]!r}") from error
    return seen


def dressed(fuzz: Fuzz) -> tuple[bytes, dict[str, str]]:
    """A body with its headers: sometimes compressed, sometimes only said to be, sometimes called something else."""
    body, headers = fuzz.body(), {"Content-Type": "application/json"}
    if fuzz.chance.random() < 0.1:
        headers["Content-Type"] = fuzz.chance.choice(CONTENT_TYPES)
    if fuzz.chance.random() < 0.2:
        headers["Content-Encoding"], compress = fuzz.chance.choice(CODINGS)
        body = compress(body)
    return body, headers


def check_answer(answer: httpx.Response, fuzz: Fuzz) -> str:
    """What kind of answer it is, or the code of its error. Raises ``AssertionError`` for one that is not lawful."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.status_code == 200
        assert answer.text.endswith("\n\ndata: [DONE]\n\n")
        frames = [frame for frame in parse_sse(answer.text) if frame["type"] != "error"]
        assert check_turn(frames).is_over  # an error event stands before response.failed, which says the same
        fuzz.learn(frames[-1]["response"])
        return "sse"
    assert answer.headers["content-type"] == "application/json"
    said = strict_json(answer.text)
    if answer.status_code != 200:
        assert set(said) == {"error"}
        check_error(said["error"], answer.status_code)
        code: str = said["error"]["code"]
        return code
    check_end(said)
    fuzz.learn(said)
    return "json"


@pytest.mark.slow
async def test_each_body_has_one_lawful_answer(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    seen = await fuzz_server(await serve(), seed=3, bodies=SHORT)
    assert seen >= EVERYWHERE
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.full
@pytest.mark.slow
async def test_thousands_of_bodies_leave_no_fault_behind(tmp_path: Path) -> None:
    async with faultless(tmp_path) as server:
        await fuzz_server(SimpleNamespace(base_url=server.ready["base_url"]), seed=4, bodies=FULL)
