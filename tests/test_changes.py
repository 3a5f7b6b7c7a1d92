"""The fragments in ``docs/changes`` have the form that its README promises to whoever writes the changelog."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "changes"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.(?P<kind>[a-z]+)\.md")
WIDTH = 120


def kinds() -> list[str]:
    """The kinds in the README's table: it is the only list of them."""
    return re.findall(r"^\| `([a-z]+)` \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a fragment."""
    found = []
    match = NAME.fullmatch(name)
    if match is None:
        found.append("the name is not <slug>.<kind>.md")
    elif match["kind"] not in kinds():
        found.append(f"the kind is none of {', '.join(kinds())}")
    if not text.strip():
        return [*found, "it is empty"]
    if not text.endswith("\n") or text != text.strip() + "\n":
        found.append("it does not begin with its text and end with one line break")
    if text.lstrip().startswith("#"):
        found.append("it has a heading")
    if not text.rstrip().endswith((".", "!", "?", "```")):
        found.append("it does not end with a whole sentence")
    if any(len(line) > WIDTH for line in text.splitlines()):
        found.append(f"a line is longer than {WIDTH} characters")
    return found


def test_the_readme_lists_the_kinds_with_breaking_changes_first() -> None:
    assert kinds()[0] == "breaking"
    assert {"feature", "fix"} <= set(kinds())
    assert len(kinds()) == len(set(kinds()))


def test_every_file_beside_the_readme_is_a_well_formed_fragment() -> None:
    fragments = [file for file in sorted(FOLDER.iterdir()) if file.name != "README.md"]
    assert {file.name: found for file in fragments if (found := faults(file.name, file.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("queue-limit.md", "The queue has a limit.\n"),
        ("Queue_Limit.feature.md", "The queue has a limit.\n"),
        ("queue-limit.novelty.md", "The queue has a limit.\n"),
        ("queue-limit.feature.txt", "The queue has a limit.\n"),
        ("queue-limit.feature.md", ""),
        ("queue-limit.feature.md", "\n"),
        ("queue-limit.feature.md", "The queue has a limit."),
        ("queue-limit.feature.md", "\nThe queue has a limit.\n"),
        ("queue-limit.feature.md", "The queue has a limit.\n\n"),
        ("queue-limit.feature.md", "## Queue\n\nIt has a limit.\n"),
        ("queue-limit.feature.md", "a limit for the queue\n"),
        ("queue-limit.feature.md", f"The queue has a {'very ' * 30} low limit.\n"),
    ],
)
def test_a_malformed_fragment_is_told_from_a_good_one(name: str, text: str) -> None:
    assert faults("queue-limit.feature.md", "The queue has a limit.\n") == []
    assert len(faults(name, text)) == 1
