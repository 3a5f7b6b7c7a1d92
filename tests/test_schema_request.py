"""What a request says about itself, and how absent raw fields look."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from respserver.schema.request import ABSENT, CreateParams, TextParam
from tests.support.pure import read


@pytest.mark.parametrize(
    ("fields", "warm_up"),
    [
        ({}, False),
        ({"generate": True}, False),
        ({"generate": None}, False),
        ({"generate": False}, True),
        ({"prompt_cache_options": {"prewarm": True}}, True),
        ({"prompt_cache_options": {"prewarm": False, "mode": "implicit"}}, False),
        ({"prompt_cache_options": {"prewarm": True}, "generate": True}, True),
    ],
    ids=str,
)
def test_a_warm_up_is_asked_for_in_two_ways(fields: dict[str, Any], warm_up: bool) -> None:
    assert read(**fields).warm_up is warm_up


@pytest.mark.parametrize(
    ("fields", "stored"), [({}, True), ({"store": None}, True), ({"store": False}, False)], ids=str
)
def test_a_response_is_stored_unless_the_request_says_no(fields: dict[str, Any], stored: bool) -> None:
    assert read(**fields).stored is stored


def test_an_absent_raw_field_is_falsy_so_that_a_default_can_stand_in() -> None:
    params = CreateParams()
    for name in CreateParams.__struct_fields__:
        assert not getattr(params, name), name
    assert not Raw(bytes(ABSENT))


def test_a_null_format_is_an_absent_one() -> None:
    decoder = msgspec.json.Decoder(TextParam)
    for text in (b"{}", b'{"format":null}', b'{"format": null }'):
        assert decoder.decode(text).format == ABSENT
    assert decoder.decode(b'{"format":{"type":"text"}}').format == Raw(b'{"type":"text"}')
