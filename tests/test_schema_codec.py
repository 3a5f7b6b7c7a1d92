"""The codec: raw fields, and msgspec's words turned into the API's errors with the field's path."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from respserver.errors import InvalidField, InvalidJson, MissingParameter
from respserver.schema.codec import MAX_LOOKED_AT, decode, encode, join, read_object, split_array, split_object


class Part(msgspec.Struct):
    kind: Literal["a", "b"] = "a"
    text: str | None = None


class Shape(msgspec.Struct):
    needed: int
    count: Annotated[int, Meta(ge=2, le=9)] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=3)] | None = None
    code: Annotated[str, Meta(pattern="^x")] | None = None
    parts: list[Part] = []
    labels: dict[Annotated[str, Meta(max_length=2)], int] = {}


SHAPE = msgspec.json.Decoder(Shape)


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        (b'{"needed":1,"count":1}', "integer_below_min_value", "count"),
        (b'{"needed":1,"count":10}', "integer_above_max_value", "count"),
        (b'{"needed":1,"share":-1}', "decimal_below_min_value", "share"),
        (b'{"needed":1,"share":1.5}', "decimal_above_max_value", "share"),
        (b'{"needed":1,"name":""}', "empty_string", "name"),
        (b'{"needed":1,"name":"long"}', "string_above_max_length", "name"),
        (b'{"needed":1,"name":7}', "invalid_type", "name"),
        (b'{"needed":1,"code":"y"}', "invalid_value", "code"),
        (b'{"needed":1,"count":1' + b"0" * 5000 + b"}", "invalid_value", "count"),
        (b'{"needed":1,"share":1e999}', "invalid_value", "share"),
        (b'{"needed":1,"parts":[{},{"kind":"c"}]}', "invalid_value", "parts[1].kind"),
        (b'{"needed":1,"parts":[5]}', "invalid_type", "parts[0]"),
        (b'{"needed":1,"labels":{"a":"x"}}', "invalid_type", "labels"),
        (b'{"needed":1,"labels":{"abc":1}}', "string_above_max_length", "labels"),
        (b'{"needed":"1"}', "invalid_type", "needed"),
        (b"[]", "invalid_type", "body"),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_the_apis_code(text: bytes, code: str, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        decode(SHAPE, text)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.message.startswith("Invalid ")
    assert not {"$", "`"} & set(caught.value.message)


LEAST, MOST = "Expected a value >=", "Expected a value <="
LONG, SHORT = "Expected a string with maximum length", "Expected a string with minimum length"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"count":1', f"Invalid 'count': integer below minimum value. {LEAST} 2, but got 1 instead."),
        ('"count":10', f"Invalid 'count': integer above maximum value. {MOST} 9, but got 10 instead."),
        ('"share":-1', f"Invalid 'share': decimal below minimum value. {LEAST} 0, but got -1 instead."),
        ('"share":1.5', f"Invalid 'share': decimal above maximum value. {MOST} 1, but got 1.5 instead."),
        ('"name":""', f"Invalid 'name': empty string. {SHORT} 1, but got an empty string instead."),
        ('"name":"long"', f"Invalid 'name': string too long. {LONG} 3, but got a string with length 4 instead."),
        ('"labels":{"abc":1}', f"Invalid 'labels': string too long. {LONG} 2."),
        (
            '"code":"y"',
            "Invalid 'code': string does not match pattern. Expected a string that matches the pattern '^x'.",
        ),
        ('"name":{}', "Invalid type for 'name': expected a string, but got an object instead."),
        ('"needed":null', "Invalid type for 'needed': expected an integer, but got null instead."),
        ('"parts":[{},{"kind":"c"}]', "Invalid value: 'c'. Supported values are: 'a', 'b'."),
        ('"share":1e999', "Invalid 'share': number out of range."),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_api(text: str, message: str) -> None:
    whole = f'{{"needed":1,{text}}}'
    for form in (whole, whole.encode(), msgspec.Raw(whole.encode())):
        with pytest.raises(InvalidField) as caught:
            decode(SHAPE, form)
        assert caught.value.message == message


def test_a_large_text_is_not_read_again_for_the_value_in_a_message() -> None:
    padding = " " * MAX_LOOKED_AT
    with pytest.raises(InvalidField) as caught:
        decode(SHAPE, f'{{"needed":1,{padding}"count":1}}')
    assert caught.value.message == "Invalid 'count': integer below minimum value. Expected a value >= 2."


def test_a_long_wrong_value_leaves_room_for_the_right_ones() -> None:
    with pytest.raises(InvalidField) as caught:
        decode(SHAPE, json.dumps({"needed": 1, "parts": [{"kind": "c" * 5000}]}))
    assert caught.value.message.endswith("…'. Supported values are: 'a', 'b'.")


def test_an_absent_field_is_named_as_missing() -> None:
    with pytest.raises(MissingParameter) as caught:
        decode(SHAPE, b"{}")
    assert caught.value.message == "Missing required parameter: 'needed'."


def test_paths_stand_below_the_field_that_was_decoded() -> None:
    with pytest.raises(InvalidField) as caught:
        decode(SHAPE, b'{"needed":1,"parts":[{"text":1}]}', "input[2]")
    assert caught.value.param == "input[2].parts[0].text"
    with pytest.raises(MissingParameter) as missing:
        decode(SHAPE, b"{}", "input[2]")
    assert missing.value.param == "input[2].needed"


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"needed":NaN}', b'{"needed":1}x', b'{"needed":1,}', b'\xef\xbb\xbf{"needed":1}', "\ud800"],
    ids=["empty", "cut", "nan", "trailing", "comma", "byte order mark", "lone surrogate"],
)
def test_text_that_is_no_json_is_said_to_be_none(text: bytes | str) -> None:
    with pytest.raises(InvalidJson) as caught:
        decode(SHAPE, text)
    assert caught.value.message.startswith("We could not parse the JSON body of your request. (")


@pytest.mark.parametrize("text", ["", b"", " \n", b"\t"])
def test_a_text_with_nothing_in_it_is_said_to_be_empty(text: bytes | str) -> None:
    with pytest.raises(InvalidJson, match=r"\(it is empty\)$"):
        read_object(text)


@pytest.mark.parametrize(
    "text",
    [
        r'{"a":"\ud83d"}',
        r'{"a":["\uD83D"]}',
        r'{"a":"\ud83d\u0041"}',
        r'{"a":"x\ude00 and so on"}',
        r'{"a":"x\ud83d and so on"}',
        r'{"\ud83d and so on":1}',
        r'{"\ud83d":1}',
        b'{"a":"\\ud83d"}',
        '{"a":"\ud83d"}',
    ],
)
def test_half_of_a_character_is_told_in_words(text: bytes | str) -> None:
    with pytest.raises(InvalidJson, match="half of a character") as caught:
        read_object(text)
    assert "utf-16" not in caught.value.message
    assert "codec" not in caught.value.message
    with pytest.raises(InvalidJson, match="half of a character"):
        decode(msgspec.json.Decoder(dict), text)


@pytest.mark.parametrize(
    "text", ['{"a":"', r'{"a":"\ud83d', r'{"a":"\\ud83d"', r'{"a":"\u0041"', b'{"a":"\\ud83d\\ude00"']
)
def test_a_text_that_is_cut_off_is_told_as_that(text: bytes | str) -> None:
    with pytest.raises(InvalidJson, match="truncated"):
        read_object(text)


def test_bytes_that_are_no_utf8_are_told_by_their_place() -> None:
    with pytest.raises(InvalidJson, match=r"it is not UTF-8 \(byte 6\)"):
        read_object(b'{"a":"\xff"}')


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_endless_nesting_is_refused(opening: str) -> None:
    with pytest.raises(InvalidJson, match="nested too deeply"):
        decode(split_object, '{"a":' + opening * 100_000)


def test_an_object_is_split_without_a_look_into_its_values() -> None:
    fields = read_object('{"a": {"b" : 1}, "c":1e999, "a":[2, 3]}')
    assert {name: bytes(raw) for name, raw in fields.items()} == {"a": b"[2, 3]", "c": b"1e999"}


@pytest.mark.parametrize("text", ["[1]", "null", "5", '"x"', b"[1]"])
def test_a_message_that_is_no_object_is_refused(text: bytes | str) -> None:
    with pytest.raises(InvalidJson, match="expected a JSON object"):
        read_object(text)


@pytest.mark.parametrize(
    "text",
    [b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":"\xed\xa0\x80"}', '{"a":"\ud800"}', '{"a":"\\ud800"}', '{"a":"\\q"}'],
    ids=["value", "key", "encoded surrogate", "surrogate", "escaped surrogate", "bad escape"],
)
def test_text_that_could_not_be_echoed_gets_no_further_even_inside_raw_values(text: bytes | str) -> None:
    with pytest.raises(InvalidJson):
        read_object(text)


def test_bytes_and_text_are_the_same_message() -> None:
    text = '{"a":"é🦊\u2028"}'
    assert read_object(text) == read_object(text.encode())


def test_encoding_is_compact_utf8() -> None:
    assert encode({"a": [1, None], "é": "\u2028"}) == '{"a":[1,null],"é":"\u2028"}'.encode()


def test_an_array_is_split_into_raw_entries() -> None:
    assert [bytes(raw) for raw in decode(split_array, b'[1, {"a": 2}, "x"]')] == [b"1", b'{"a": 2}', b'"x"']


@pytest.mark.parametrize(
    ("param", "path", "joined"),
    [("input[0]", "role", "input[0].role"), ("input", "[1]", "input[1]"), ("", "a", "a"), ("a", "", "a"), ("", "", "")],
)
def test_paths_are_joined_as_clients_write_them(param: str, path: str, joined: str) -> None:
    assert join(param, path) == joined
