"""Strings for patterns: which patterns are followed, and to what."""

from __future__ import annotations

import pytest

from respserver.engines.sim.schema_text import MAX_GROUPS, MAX_PATTERN, sample


@pytest.mark.parametrize(
    ("pattern", "extra", "found"),
    [
        (r"^\+?[0-9]{10}$", 0, "0000000000"),
        ("^[a-z0-9-]+$", 7, "aaaaaaa"),
        ("a*b", 0, "b"),
        ("a*b", 2, "aab"),
        ("a{2,}", 3, "aaa"),
        ("a{2,5}", 9, "aa"),
        ("(?:ab|c)d", 0, "abd"),
        (r"[^a0A]\.\{", 0, "-.{"),
        ("日本", 0, "日本"),
        ("a+?b", 1, "ab"),
        (r"\D\S\s", 0, "aa "),
        (r"[^\w\s]", 0, "-"),
        (r"\n", 0, "\n"),
        ("[日-本]", 0, "日"),
        ("[0-9-]?x", 0, "x"),
        ("[[a]]", 0, "a]"),
        ("(a+)+", 0, "a"),
        ("(a|a)*b", 0, "b"),
        ("a*a*a*a*a*b", 0, "b"),
        ("", 0, ""),
        ("(?=a)a", 0, None),
        (r"(a)\1", 0, None),
        (r"\bword\b", 0, None),
        (r"\x41", 0, None),
        ("a{999999999}", 0, None),
        ("(a{100}){100}", 0, None),
        ("(", 0, None),
        ("a)", 0, None),
        ("[", 0, None),
        ("[]", 0, None),
        ("[z-a]", 0, None),
        (r"[^\w\W]", 0, None),
        ("*", 0, None),
        ("a**", 0, None),
        ("\\", 0, None),
        ("(" * MAX_GROUPS + ")" * MAX_GROUPS + "()", 0, ""),
        ("(" * (MAX_GROUPS + 1) + ")" * (MAX_GROUPS + 1), 0, None),
        ("^" * MAX_PATTERN, 0, ""),
        ("^" * (MAX_PATTERN + 1), 0, None),
    ],
)
def test_patterns_are_followed_or_left_alone(pattern: str, extra: int, found: str | None) -> None:
    assert sample(pattern, extra) == found
