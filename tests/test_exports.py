"""The package's faces hand on what they list, and importing the outer one costs nothing."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import respserver

NAMES = {
    "Client": "respserver.client",
    "Config": "respserver.config",
    "Limits": "respserver.config",
    "Mode": "respserver.config",
    "RunningServer": "respserver.embed",
    "Script": "respserver.engines.sim",
    "open_server": "respserver.embed",
    "serve": "respserver.server",
    "start_server": "respserver.embed",
}


def test_the_face_has_exactly_these_names() -> None:
    assert respserver.__all__ == sorted(NAMES)
    assert set(respserver.__all__) <= set(dir(respserver))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_name_is_the_one_of_its_room(name: str) -> None:
    assert getattr(respserver, name) is getattr(importlib.import_module(NAMES[name]), name)


def test_type_checkers_see_the_same_names_as_programs() -> None:
    (guarded,) = [node for node in _tree(respserver.__file__).body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == NAMES


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Serveur'"):
        respserver.Serveur  # noqa: B018 - asking is the test
    with pytest.raises(ImportError):
        from respserver import Serveur  # noqa: F401 - as above


def test_importing_the_face_imports_no_room() -> None:
    code = "import sys, json, respserver; print(json.dumps([respserver.__version__, sorted(sys.modules)]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, modules = json.loads(run.stdout)
    assert version == respserver.__version__
    assert [name for name in modules if name.startswith("respserver.")] == []
    assert {"trio", "quart", "msgspec"}.isdisjoint(modules)


@pytest.mark.parametrize("room", ["client", "engines.sim", "testing"])
def test_rooms_with_a_face_list_all_that_they_hand_on_and_nothing_else(room: str) -> None:
    face = importlib.import_module(f"respserver.{room}")
    handed_on = {
        alias.name for node in _tree(face.__file__).body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert face.__all__ == sorted(handed_on)


def _tree(file: str | None) -> ast.Module:
    assert file is not None
    return ast.parse(Path(file).read_text("utf-8"))
