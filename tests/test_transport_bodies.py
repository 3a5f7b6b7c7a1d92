"""Compressed request bodies: what goes in comes out, damage and bombs are refused before they hurt."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from respserver.errors import InvalidRequest, PayloadTooLarge
from respserver.transport.bodies import MAX_MEMBERS, inflate
from tests.support.live import http, text_of

CODINGS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "identity": bytes,
    "": bytes,
}


@pytest.mark.parametrize("coding", sorted(CODINGS))
@given(body=st.binary(max_size=1000))
def test_every_coding_gives_back_what_was_compressed(coding: str, body: bytes) -> None:
    assert inflate(CODINGS[coding](body), coding.upper(), 1000) == body


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_a_bomb_is_refused_at_the_limit(coding: str) -> None:
    bomb = CODINGS[coding](bytes(50_000_000))
    assert len(bomb) < 60_000
    with pytest.raises(PayloadTooLarge) as caught:
        inflate(bomb, coding, 1_000_000)
    assert caught.value.status == 413


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_damaged_bodies_are_refused(coding: str, damage: str) -> None:
    whole = CODINGS[coding](b"some text that is long enough to be cut" * 10)
    body = {"cut": whole[:-6], "noise": b"no such thing", "empty": b""}[damage]
    with pytest.raises(InvalidRequest) as caught:
        inflate(body, coding, 10_000)
    assert (caught.value.status, caught.value.code) == (400, "invalid_body")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@given(parts=st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_members_in_a_row_are_one_body(coding: str, parts: list[bytes]) -> None:
    assert inflate(b"".join(map(CODINGS[coding], parts)), coding, 1000) == b"".join(parts)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_the_limit_is_for_all_members_together(coding: str) -> None:
    body = CODINGS[coding](bytes(500)) * 2
    assert len(inflate(body, coding, 1000)) == 1000
    with pytest.raises(PayloadTooLarge):
        inflate(body, coding, 999)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("behind", [b"garbage", b"\0", "cut"])
def test_what_is_no_member_behind_the_first_is_refused(coding: str, behind: bytes | str) -> None:
    whole = CODINGS[coding](b"some text that is long enough to be cut" * 10)
    with pytest.raises(InvalidRequest) as caught:
        inflate(whole + (whole[:-6] if isinstance(behind, str) else behind), coding, 10_000)
    assert (caught.value.status, caught.value.code) == (400, "invalid_body")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_of_very_many_members_is_refused(coding: str) -> None:
    """Each costs a copy of all that is behind it."""
    assert inflate(CODINGS[coding](b"x") * MAX_MEMBERS, coding, 1000) == b"x" * MAX_MEMBERS
    with pytest.raises(InvalidRequest):
        inflate(CODINGS[coding](b"x") * (MAX_MEMBERS + 1), coding, 1000)


def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, compression_level=1)
    body = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = body.compress(b"x" * 1000) + body.flush()
    with pytest.raises(InvalidRequest):
        inflate(frame, "zstd", 10_000)


def test_an_unknown_coding_is_named() -> None:
    with pytest.raises(InvalidRequest, match="'br'") as caught:
        inflate(b"x", "br", 10)
    assert caught.value.status == 415


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a_post_may_come_compressed(serve: Any, coding: str) -> None:
    body = CODINGS[coding](json.dumps({"model": "sim", "input": "squeezed"}).encode())
    async with http(await serve()) as client:
        answer = await client.post("/responses", content=body, headers={"Content-Encoding": coding})
    assert text_of(answer.json()) == "You said: squeezed"


async def test_bodies_over_the_limit_get_413_compressed_or_not(serve: Any) -> None:
    server = await serve(limits={"message_bytes": 4096})
    body = json.dumps({"model": "sim", "input": "x" * 5000}).encode()
    async with http(server) as client:
        for content, headers in ((body, {}), (gzip.compress(body), {"Content-Encoding": "gzip"})):
            answer = await client.post("/responses", content=content, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")
        small = json.dumps({"model": "sim", "input": "x" * 3000}).encode()
        assert (await client.post("/responses", content=small)).status_code == 200
