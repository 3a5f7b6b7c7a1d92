"""The documentation says what is so: options, codes, events, fields, modules, links and citations.

``tests/test_docs_examples.py`` runs the examples; ``tests/support/pages.py`` tells how they are marked.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

import respserver
from respserver import Config, Mode, settings
from respserver.announce import codex_settings
from respserver.errors import ApiError
from respserver.metrics import Metrics
from respserver.schema import codec, events
from respserver.schema.request import CreateParams
from respserver.schema.response import Response
from respserver.server import Address
from tests.support.pages import (
    DOCS,
    PAGES,
    ROOT,
    Block,
    all_blocks,
    anchors,
    blocks,
    links,
    maker,
    name_of,
    prose,
    section_numbers,
    text_of,
)

PACKAGE = ROOT / "respserver"
README = ROOT / "README.md"
PROTOCOL = DOCS / "protocol.md"
DESIGN = DOCS / "design.md"
OUR_OPTIONS = {option.flag for option in settings.OPTIONS} | {"--help", "--version", "--config"}
FOREIGN_OPTIONS = {"--skip-git-repo-check", "--cacert"}
"""Of Codex and curl."""
OTHER_COMMANDS = {DOCS / "benchmarks.md", DOCS / "usage.md"}
"""Pages about commands with options of their own."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OTHER_COMMANDS], ids=name_of)
def test_every_option_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text_of(page)))
    assert named <= OUR_OPTIONS | FOREIGN_OPTIONS


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_internal_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_outside_tables_and_blocks_can_be_read_without_scrolling(page: Path) -> None:
    prose = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def test_the_protocol_begins_with_all_its_sections() -> None:
    contents, _, body = text_of(PROTOCOL).partition("\n## 1. ")
    sections = re.findall(r"^###? (\d.*)$", f"## 1. {body}", re.MULTILINE)
    assert re.findall(r"\[(\d[^\]]*)\]\(#", contents) == [section.replace("`", "") for section in sections]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = ((page.parent / link.partition("#")[0]).resolve() for link in links(page))
            waiting += [target for target in targets if target.suffix == ".md" and target.exists()]
    fragments = set((DOCS / "changes").glob("*.*.md"))
    assert set(PAGES) - fragments <= reached


# ------------------------------------------------------------------------------------------------ protocol.md


def class_name(kind: type) -> str:
    return kind.__name__


def error_classes() -> list[type[ApiError]]:
    """The package's errors that clients are told."""
    found: set[type[ApiError]] = set()
    waiting: list[type[ApiError]] = [ApiError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("respserver."):
            found.add(kind)
    return sorted(found, key=class_name)


@pytest.mark.parametrize("kind", error_classes(), ids=class_name)
def test_every_error_is_in_the_table_with_its_status(kind: type[ApiError]) -> None:
    assert re.search(rf"^\| {kind.status} \|[^|]*`{kind.code}`[^|]*\|", text_of(PROTOCOL), re.MULTILINE)


def codes_in_the_code() -> set[str]:
    """Codes that are given where an error is raised, beside those of the classes."""
    found = {code for _, code, _ in codec._BOUNDS}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if isinstance(node.func, ast.Name) and node.func.id == "InvalidField":
                given += node.args[2:3]
            given += [branch for one in given if isinstance(one, ast.IfExp) for branch in (one.body, one.orelse)]
            found |= {one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found


@pytest.mark.parametrize("page", [PROTOCOL, DOCS / "errors.md"], ids=name_of)
def test_every_code_that_an_error_has_or_is_given_is_told(page: Path) -> None:
    codes = codes_in_the_code() | {kind.code for kind in error_classes()}
    assert {"duplicate_item_id", "queue_full"} <= codes
    assert not {code for code in codes if f"`{code}`" not in text_of(page)}


@pytest.mark.slow
def test_no_code_in_the_table_is_invented() -> None:
    known = {kind.code for kind in error_classes()} | codes_in_the_code()
    known |= {source.code for source in maker("make_errors_page").sources()}  # it also knows who hands codes on
    rows = re.findall(r"^\| [45]\d\d \| ([^|]+) \|", text_of(PROTOCOL), re.MULTILINE)
    assert rows
    assert not {code for row in rows for code in re.findall(r"`(\w+)`", row)} - known


def test_every_event_is_listed() -> None:
    tags = {
        kind.__struct_config__.tag
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event | events.ErrorFrame)
    } - {"Event"}
    assert "response.done" in tags
    assert not {tag for tag in tags if f"`{tag}`" not in text_of(PROTOCOL)}


@pytest.mark.parametrize("kind", [CreateParams, Response], ids=class_name)
def test_every_field_of_requests_and_responses_is_named(kind: type[msgspec.Struct]) -> None:
    assert not {name for name in kind.__struct_fields__ if f"`{name}`" not in text_of(PROTOCOL)}


# -------------------------------------------------------------------------------------------------- design.md


def test_every_file_that_the_design_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", prose(DESIGN))
    assert "turn/run.py" in named
    for path in named:
        found = [PACKAGE / path, ROOT / path, *PACKAGE.rglob(path)]
        assert any(one.is_file() for one in found), path


def test_the_layout_names_every_room_and_nothing_that_is_not_there() -> None:
    layout = next(block.code for block in blocks(DESIGN) if block.code.startswith("respserver/\n"))
    entries = re.split(r"\n  (?=\w)", " ".join(re.split(r"\n {10,}", layout)))[1:]
    rooms = {entry.partition(" ")[0]: entry.partition(": ")[2] for entry in entries}
    there = {path.name + "/" * path.is_dir() for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert set(rooms) == there | {path.name for path in PACKAGE.glob("*.py")}
    for room, listed in rooms.items():
        for name in listed.split(", ") if room.endswith("/") and listed else []:
            path = PACKAGE / room / name.strip()
            assert path.is_dir() or path.with_suffix(".py").is_file(), f"{room}{name}"


CITATION = re.compile(r"(\w+)\.md sections? ((?:\d+(?:\.\d+)?)(?:(?:, | and )\d+(?:\.\d+)?)*)")


def sources() -> list[Path]:
    folders = (PACKAGE, ROOT / "tests", ROOT / "bench")
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def test_every_section_that_the_code_cites_is_there() -> None:
    known = {page.name: section_numbers(page) for page in (PROTOCOL, DESIGN)}
    missing = [
        f"{path.relative_to(ROOT)}: {name}.md section {number}"
        for path in sources()
        for name, numbers in CITATION.findall(path.read_text("utf-8"))
        if f"{name}.md" in known
        for number in re.findall(r"\d+(?:\.\d+)?", numbers)
        if number not in known[f"{name}.md"]
    ]
    assert not missing


def test_every_field_case_that_the_code_cites_is_listed_and_has_tests_of_its_number() -> None:
    listed = set(re.findall(r"^\| (F\d\d) \|", text_of(DOCS / "field-cases.md"), re.MULTILINE))
    assert len(listed) == 40
    for path in sources():
        assert set(re.findall(r"\bF\d\d\b", path.read_text("utf-8"))) <= listed, path
    tests = [path.read_text("utf-8") for path in (ROOT / "tests/field_cases").glob("test_*.py")]
    assert {name.upper() for text in tests for name in re.findall(r"def test_(f\d\d)_", text)} == listed


# ----------------------------------------------------------------------------------------- README, embedding.md


@pytest.mark.parametrize("name", ["run", "test"])
def test_the_readme_has_the_commands_that_ci_runs(name: str) -> None:
    found = re.findall(rf"^<!-- set-up: {name} -->\n```sh\n([^\n]+)\n```$", text_of(README), re.MULTILINE)
    assert len(found) == 1
    assert subprocess.run(["bash", "-n"], input=found[0], text=True).returncode == 0


@pytest.mark.parametrize("page", [README, DOCS / "quickstart.md"], ids=name_of)
def test_the_settings_for_codex_are_those_of_the_banner(page: Path) -> None:
    shown = [block.code for block in blocks(page) if block.language == "toml" and "model_provider" in block.code]
    address = Address(host="127.0.0.1", port=8080)
    assert shown[0] == "\n".join(codex_settings(Config(), address)) + "\n"
    banner = "\n".join(codex_settings(Config(mode=Mode.PROTOTYPE), address))
    for later in shown[1:]:
        assert all(line in banner for line in later.splitlines() if not line.startswith(("[features]", "responses_")))


def test_every_public_name_is_explained() -> None:
    text = text_of(DOCS / "embedding.md")
    assert not {name for name in respserver.__all__ if not re.search(rf"`{name}\b", text)}


def test_every_count_that_is_documented_is_counted() -> None:
    table = text_of(DOCS / "embedding.md").partition("| count |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
    named -= {"response"}
    assert "turns" in named
    assert named <= set(Metrics.__struct_fields__)


# ----------------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize(
    "block", [block for block in all_blocks() if block.language in ("python", "toml", "json")], ids=str
)
def test_code_in_pages_can_be_read_by_its_language(block: Block) -> None:
    match block.language:
        case "python":
            compile(block.code, str(block), "exec")
        case "toml":
            tomllib.loads(block.code)
        case "json":
            json.loads(block.code)
