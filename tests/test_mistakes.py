"""Mistakes in settings and scripts, told by place and in words; what the tables of each say is in their own tests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from respserver import mistakes


class Fish(msgspec.Struct, tag="fish", tag_field="kind", forbid_unknown_fields=True):
    """One of two kinds of table."""

    length: Annotated[float, Meta(gt=0)]
    name: Annotated[str, Meta(min_length=1)] | None = None


class Boat(msgspec.Struct, tag="boat", tag_field="kind", forbid_unknown_fields=True):
    """The other one."""

    sails: Annotated[int, Meta(ge=1, le=9)]
    key: Annotated[str, Meta(pattern="^[a-z]+$", extra={"words": "small letters", "secret": True})] = "k"


class Log(msgspec.Struct, forbid_unknown_fields=True):
    """A whole document."""

    seen: list[Fish | Boat] = []
    wind: Literal["calm", "breeze", "gale"] = "calm"
    open: bool = False
    notes: str | list[str] = ""
    counts: dict[str, int] = {}


@pytest.mark.parametrize(
    ("document", "place", "problem"),
    [
        ({"sen": []}, "sen", "unknown key; did you mean seen?"),
        ({"xyzzy": 1}, "xyzzy", "unknown key"),
        ({"wind": "storm"}, "wind", "expected calm, breeze or gale, got 'storm'"),
        ({"open": "on"}, "open", "expected true or false, without quotes, got 'on'"),
        ({"notes": 5}, "notes", "expected a text or a list of texts, got 5"),
        ({"notes": ["a", 5]}, "notes[1]", "expected a text, got 5"),
        ({"seen": {"kind": "fish"}}, "seen", "write [[seen]], with two brackets"),
        ({"seen": [5]}, "seen[0]", "expected a table, got 5"),
        ({"seen": [{}]}, "seen[0].kind", "is missing"),
        ({"seen": [{"kind": "bird"}]}, "seen[0].kind", "expected fish or boat, got 'bird'"),
        ({"seen": [{"kind": "fish"}]}, "seen[0].length", "is missing"),
        ({"seen": [{"kind": "fish", "length": 0}]}, "seen[0].length", "expected a number above 0, got 0"),
        ({"seen": [{"kind": "fish", "lenth": 1}]}, "seen[0].lenth", "unknown key; did you mean length?"),
        ({"seen": [{"kind": "boat", "lenth": 1}]}, "seen[0].lenth", "unknown key"),
        ({"seen": [{"kind": "boat", "sails": 10}]}, "seen[0].sails", "expected a whole number from 1 to 9, got 10"),
        ({"seen": [{"kind": "boat", "sails": 1, "key": "S-3"}]}, "seen[0].key", "expected small letters"),
        (
            {"seen": [{"kind": "fish", "length": 1, "name": ""}]},
            "seen[0].name",
            "expected a text that is not empty, got ''",
        ),
        ({"counts": 5}, "counts", "expected a table, got 5"),
        (5, "", "expected a table, got 5"),
    ],
)
def test_a_mistake_has_a_place_and_words(document: Any, place: str, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(document, Log)
    assert mistakes.explain(caught.value, Log, document) == (place, problem)


def test_where_a_value_stands_itself_comes_first() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert([{}], list[Fish | Boat])
    assert mistakes.explain(caught.value, list[Fish | Boat], [{}], below="seen") == ("seen[0].kind", "is missing")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1}, "a table"),
        ([{"a": 1}], "a list"),
        ([1, "a"], "[1, 'a']"),
        (object(), "object"),
        ("x" * 500, "'" + "x" * 98 + "…"),
        (None, "None"),
    ],
)
def test_a_wrong_value_is_shown_as_far_as_it_fits_a_line(value: object, text: str) -> None:
    assert mistakes.shown(value) == text


def test_names_are_joined_as_one_says_them() -> None:
    assert [mistakes.one_of(names) for names in (["a"], ["a", "b"], ["a", "b", "c"], [])] == [
        "a",
        "a or b",
        "a, b or c",
        "",
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["seen", "kind", "length", "sails", "wind", "a.b", "[0]"]), inner, max_size=3
            )
        ),
        max_leaves=10,
    )
)
def test_any_document_is_right_or_has_one_line_about_it(document: Any) -> None:
    try:
        msgspec.convert(document, Log)
    except msgspec.ValidationError as error:
        place, problem = mistakes.explain(error, Log, document)
        assert problem.startswith(("expected ", "unknown key", "is missing", "write [["))
        assert "`" not in problem
        assert "\n" not in place + problem
