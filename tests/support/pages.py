"""The documentation as data: pages, fenced blocks, headings, links.

What a block is for stands in a comment on the line before it:

    <!-- example: run -->              the block (python or sh) is run against a server in shipped mode
    <!-- example: run, prototype -->   the same in prototype mode
    <!-- example: prints -->           behind a block that is run: what it prints, to the letter
    <!-- example: test -->             a test file in Python, which pytest must pass
    <!-- example: script -->           a script file in TOML, which must be one that the model can play

Blocks name the server by its default address; whoever runs them puts in the real one.
"""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
BASE_URL = "http://127.0.0.1:8080/v1"


class Block(NamedTuple):
    """One fenced block; ``use`` and ``mode`` are from the comment before it, empty without one."""

    page: Path
    line: int
    use: str
    mode: str
    language: str
    code: str
    prints: str | None

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


_FENCE = re.compile(
    r"^(?:(?P<margin>[ ]*)<!--[ ]example:[ ](?P<use>\w+)(?:,[ ](?P<mode>\w+))?[ ]-->\n)?"
    r"(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"^ *<!-- example: .*-->$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def maker(name: str) -> ModuleType:
    """A program that writes a page, ``docs/NAME.py``: ``PAGE`` is its file, ``page()`` what should stand there."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(page: Path) -> str:
    """The page's path below the root, for messages and test ids."""
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """The page as it stands."""
    return page.read_text("utf-8")


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page; what a block prints is part of it and no block of its own.

    Raises ``AssertionError`` for a comment that belongs to no block.
    """
    text = text_of(page)
    found: list[Block] = []
    comments = 0
    for match in _FENCE.finditer(text):
        use, mode = match["use"] or "", match["mode"] or ""
        comments += bool(use)
        code = textwrap.dedent(match["code"])
        if use == "prints":
            found[-1] = found[-1]._replace(prints=code)
        else:
            line = text.count("\n", 0, match.start("indent")) + 1
            found.append(Block(page, line, use, mode, match["language"], code, None))
    assert comments == len(_COMMENT.findall(text)), f"{name_of(page)}: an example comment is not followed by a block"
    return found


def all_blocks(use: str | None = None) -> list[Block]:
    """The blocks of all pages, or those of one use."""
    return [block for page in PAGES for block in blocks(page) if use is None or block.use == use]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def links(page: Path) -> list[str]:
    """Targets of a page's links."""
    return _LINK.findall(prose(page))


def headings(page: Path) -> list[str]:
    """A page's headings, without their marks."""
    return _HEADING.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What links may name behind ``#``: headings as code hosts spell them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def section_numbers(page: Path) -> set[str]:
    """The numbers that a page's headings begin with, as in ``5`` and ``5.2``."""
    found = (re.match(r"(\d+(?:\.\d+)?)\.? ", heading) for heading in headings(page))
    return {match[1] for match in found if match}
