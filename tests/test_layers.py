"""The house rules that a machine can check: imports go down, pure rooms stay pure, files stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "respserver"
MAX_LINES = 400

FLOORS: list[set[str]] = [
    {"errors", "message_socket", "limits", "mistakes", "origins", "hosts"},
    {"tables"},
    {"config", "schema", "metrics", "logger", "http11"},
    {"state", "tokens"},
    {"protocol", "engines", "store", "ledger", "tools"},
    {"turn"},
    {"auth", "log", "services"},
    {"session", "settings"},
    {"transport"},
    {"server"},
    {"embed", "announce", "signals", "usage"},
    {"cli"},
    {"testing"},
    {"__main__", "__init__"},
]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
APART = {"client": {"schema", "errors", "http11"}, "conformance": {"schema", "errors", "http11", "client"}}
"""The judge must not lean on the judged. ``http11`` is a client's half of HTTP/1.1, which the server has no use for but
where it asks others itself."""
CHECKS = {"testing": {"state", "store", "engines", "errors"}}
"""What other projects' tests import lives on the public interfaces alone, the pytest plugin excepted."""
PURE = {"errors", "schema", "state", "tokens", "protocol"}
IMPURE_MODULES = {
    "trio", "anyio", "asyncio", "time", "datetime", "random", "secrets", "uuid", "os", "pathlib", "io", "socket",
    "logging", "structlog", "importlib", "tempfile", "threading", "subprocess",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def own_rooms(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("respserver.")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_go_down(path: Path) -> None:
    room = room_of(path)
    if room in APART:
        assert own_rooms(path) - {room} <= APART[room]
        return
    assert room in FLOOR_OF, f"{room} has no floor in this test"
    for other in own_rooms(path) - {room}:
        assert other in FLOOR_OF or other in APART, f"{other} has no floor in this test"
        if other in APART:
            assert room in ("__init__", "testing"), f"{room} imports {other}, which stands apart"
        else:
            assert FLOOR_OF[other] < FLOOR_OF[room], f"{room} imports {other}, which is not below it"


@pytest.mark.parametrize(
    "path", [p for p in modules() if room_of(p) in PURE], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_pure_rooms_hold_no_trio_clock_randomness_files_environment_or_logging(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports_of(path)}
    assert not roots & IMPURE_MODULES
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input"}


def test_errors_imports_nothing() -> None:
    for path in sorted((PACKAGE / "errors").glob("*.py")):
        assert all(name == "__future__" or name.startswith("respserver.errors") for name in imports_of(path)), path


@pytest.mark.parametrize(
    "path", [*modules(), *sorted((ROOT / "tests").rglob("*.py"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_files_stay_under_the_limit(path: Path) -> None:
    assert len(path.read_text().splitlines()) < MAX_LINES


def test_no_room_is_called_after_nothing() -> None:
    assert not {path.stem for path in modules()} & {"utils", "util", "helpers", "common", "manager", "misc"}


def test_mode_is_asked_only_where_the_modes_differ() -> None:
    """No comparison with a mode outside the state tables and the turn (style: one loop, two modes).

    ``match`` compares too; handing a mode on does not, and what people are told of a mode is not the loop's business.
    """
    allowed = {"protocol/states.py", "turn/run.py"}
    for path in modules():
        if room_of(path) in {"turn", "protocol", "session", "transport"}:
            if str(path.relative_to(PACKAGE)) in allowed:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Compare | ast.MatchValue):
                    assert "Mode." not in ast.unparse(node), f"{path}:{node.lineno} asks for the mode"
