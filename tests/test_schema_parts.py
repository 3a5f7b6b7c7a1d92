"""Content parts: texts as they are, images and files by their form and the room that they take."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.errors import InvalidRequest
from respserver.schema.items import InputPart
from respserver.schema.parts import (
    IMAGE_TOKENS,
    MAX_FILE_TOKENS,
    MIN_FILE_TOKENS,
    Part,
    base64_size,
    file_tokens,
    read_parts,
)

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG data").decode()
PDF = base64.b64encode(b"%PDF-1.7 " * 10_000).decode()


def part(kind: str, **fields: Any) -> InputPart:
    (read,) = read_parts([msgspec.convert({"type": kind, **fields}, Part)], "content")
    return read


def test_a_string_is_one_text() -> None:
    assert read_parts("hi", "content") == [InputPart(type="input_text", text="hi")]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("input_text", {"text": ""}),
        ("output_text", {"text": "x", "annotations": []}),
        ("refusal", {"refusal": "no"}),
        ("text", {"text": "x"}),
        ("new", {"text": "x", "refusal": "y"}),
        ("new", {}),
    ],
)
def test_texts_are_taken_as_they_are(kind: str, fields: dict[str, Any]) -> None:
    expected = InputPart(type=kind, text=fields.get("text"), refusal=fields.get("refusal"))
    assert part(kind, **fields, prompt_cache_breakpoint={"mode": "explicit"}) == expected


@pytest.mark.parametrize("detail", [None, *IMAGE_TOKENS])
@pytest.mark.parametrize(
    "source",
    [{"image_url": PNG}, {"image_url": "https://host.example/a.png?b=c"}, {"file_id": "file_1"}],
    ids=["data", "address", "file"],
)
def test_an_image_takes_room_by_its_detail(source: dict[str, Any], detail: str | None) -> None:
    image = part("input_image", **source, detail=detail)
    assert image.pads == IMAGE_TOKENS[detail or "auto"]
    assert image.size == (9 if source.get("image_url") == PNG else 0)


@pytest.mark.parametrize("url", [PNG.replace("png", "JPEG"), PNG.replace("data:", "DATA:"), PNG.replace(";", ";a=b;")])
def test_the_form_of_a_data_url_may_vary(url: str) -> None:
    assert part("input_image", image_url=url).size == 9


@pytest.mark.parametrize(
    "source",
    [
        {"file_data": PDF},
        {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"},
        {"file_url": "http://host.example/a.pdf"},
        {"file_id": "file_1", "detail": "high"},
    ],
    ids=["data", "data URL", "address", "file"],
)
def test_a_file_takes_room_by_its_size(source: dict[str, Any]) -> None:
    file = part("input_file", **source)
    assert file.size == (90_000 if "file_data" in source else 0)
    assert file.pads == (90_000 // 256 if "file_data" in source else MIN_FILE_TOKENS)


def test_the_room_of_files_has_bounds() -> None:
    assert [file_tokens(size) for size in (0, 1, 1 << 40)] == [MIN_FILE_TOKENS, MIN_FILE_TOKENS, MAX_FILE_TOKENS]


M = "missing_required_parameter"


@pytest.mark.parametrize(
    ("kind", "fields", "code", "field"),
    [
        ("input_text", {}, M, "text"),
        ("output_text", {}, M, "text"),
        ("refusal", {}, M, "refusal"),
        ("input_image", {}, M, "image_url"),
        ("input_image", {"file_id": ""}, M, "image_url"),
        ("input_image", {"file_id": "f", "detail": "huge"}, "invalid_value", "detail"),
        ("input_image", {"image_url": ""}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "a.png"}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "file:///etc/passwd"}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "https://"}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "http://[::1/"}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "data:image/png;base64"}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "data:image/png,abc"}, "invalid_image_url", "image_url"),
        ("input_image", {"image_url": "data:image/svg+xml;base64,YQ=="}, "unsupported_image_media_type", "image_url"),
        ("input_image", {"image_url": "data:;base64,YQ=="}, "unsupported_image_media_type", "image_url"),
        ("input_image", {"image_url": "data:image/png;base64,Y!=="}, "invalid_base64_image", "image_url"),
        ("input_image", {"image_url": "data:image/png;base64,é"}, "invalid_base64_image", "image_url"),
        ("input_image", {"image_url": "data:image/png;base64,"}, "empty_image_file", "image_url"),
        ("input_file", {}, M, "file_id"),
        ("input_file", {"filename": "a.pdf"}, M, "file_id"),
        ("input_file", {"file_url": "ftp://host.example/a"}, "invalid_file_url", "file_url"),
        ("input_file", {"file_data": ""}, "empty_file", "file_data"),
        ("input_file", {"file_data": "data:application/pdf;base64,"}, "empty_file", "file_data"),
        ("input_file", {"file_data": "hello!"}, "invalid_base64_file", "file_data"),
        ("input_file", {"file_data": "data:application/pdf,YQ=="}, "invalid_base64_file", "file_data"),
    ],
)
def test_a_faulty_part_is_named_by_its_place(kind: str, fields: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        part(kind, **fields)
    assert (caught.value.code, caught.value.param) == (code, f"content[0].{field}")


@given(st.binary(max_size=40))
def test_the_size_of_base64_is_known_without_decoding(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    assert base64_size(text) == base64_size(text.rstrip("=")) == len(data)


@pytest.mark.parametrize("text", ["A", "AA=", "A===", "AAAA=", "=", "AA==AA==", "A-_A", "AA AA", "AAAA\n", "\udc80"])
def test_what_is_no_base64_has_no_size(text: str) -> None:
    assert base64_size(text) is None
