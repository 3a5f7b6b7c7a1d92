"""Writes docs/states.md from the tables of ``protocol/states.py``; ``tests/test_docs_pages.py`` checks that it is so.

Run it after a change of that module: ``python docs/make_state_diagrams.py``. Every table of the module is drawn. What
the page says about a state or a move is the text below it in its enum; a comment behind a row speaks for that row.
"""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from respserver.protocol import states

PAGE = Path(__file__).with_name("states.md")

HEAD = """\
# States

<!-- Made by docs/make_state_diagrams.py; change that or respserver/protocol/states.py. -->

What may happen, and when, stands in tables in `respserver/protocol/states.py`: a state, a move, the next state. They
are drawn here. The first two are of a lane: each lane of a connection has such a machine of its own. The third is of a
submission of steering input: each has its own. A move that is not drawn does not happen. What a client sends that
would ask for one is refused or waits in line, and moves nothing.
"""

Table = dict[tuple[enum.Enum, enum.Enum], enum.Enum]


def page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD]
    drawn: dict[str, Table] = {}
    for name, table in tables():
        base = next((known for known in reversed(drawn) if drawn[known].items() < table.items()), "")
        parts.append(_section(name, table, base, drawn.get(base, {})))
        drawn[name] = table
    return "\n".join(parts)


def tables() -> Iterator[tuple[str, Table]]:
    """The module's tables with their names, in the order in which they stand there."""
    for name, value in vars(states).items():
        if isinstance(value, dict) and value and all(_is_row(*row) for row in value.items()):
            yield name, value


def sayings(kind: type[enum.Enum]) -> dict[str, str]:
    """What is said below each member of an enum."""
    body = next(node for node in _tree().body if isinstance(node, ast.ClassDef) and node.name == kind.__name__).body
    found = {}
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(after, ast.Expr):
            found[node.targets[0].id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def _is_row(key: Any, value: Any) -> bool:
    is_pair = isinstance(key, tuple) and len(key) == 2
    return is_pair and all(isinstance(part, enum.Enum) for part in (*key, value))


def _tree() -> ast.Module:
    return ast.parse(inspect.getsource(states))


def _section(name: str, table: Table, base: str, below: Table) -> str:
    modes = [mode.value for mode, used in states.TABLES.items() if used is table]
    title = f"{modes[0].capitalize()} mode: `{name}`" if modes else f"`{name}`"
    kinds = list(dict.fromkeys(state for (before, _), after in table.items() for state in (before, after)))
    new = {state for (before, _), after in below.items() for state in (before, after)}
    added = {row: after for row, after in table.items() if row not in below}
    lead = f"All of `{base}`, and these moves:\n\n" if base else ""
    return "\n".join([
        f"## {title}\n",
        _diagram(table),
        *([_states([state for state in kinds if state not in new])] if set(kinds) - new else []),
        lead + _moves(name, added),
    ])  # fmt: skip


def _diagram(table: Table) -> str:
    """It starts where the enum does and ends where no move leads on. Moves with the same ends share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, move), after in table.items():
        arrows.setdefault((before.name, after.name), []).append(move.value)
    first = next(iter(type(next(iter(table))[0])))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    lines += [f"    {before} --> {after}: {', '.join(moves)}" for (before, after), moves in arrows.items()]
    last = {after.name for after in table.values()} - {before.name for before, _ in table}
    lines += [f"    {name} --> [*]" for name in sorted(last)]
    return "\n".join([*lines, "```", ""])


def _states(members: list[enum.Enum]) -> str:
    lines = ["| state | what it is |", "| --- | --- |"]
    lines += [f"| {one.name} | {_markdown(sayings(type(one)).get(one.name, ''))} |" for one in members]
    return "\n".join([*lines, ""])


def _moves(name: str, table: Table) -> str:
    lines = ["| in | move | then | when |", "| --- | --- | --- | --- |"]
    remarks = _remarks(name)
    for (before, move), after in table.items():
        said = sayings(type(move)).get(move.name, "")
        if remark := remarks.get((before.name, move.name)):
            said = f"{said} {remark[0].upper()}{remark[1:]}."
        lines.append(f"| {before.name} | {move.value} | {after.name} | {_markdown(said)} |")
    return "\n".join([*lines, ""])


def _remarks(name: str) -> dict[tuple[str, str], str]:
    """Comments behind the rows of a table, by the names of state and move."""
    source = inspect.getsource(states).splitlines()
    found = {}
    for node in _tree().body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name):
            continue
        for key in (key for one in ast.walk(node) if isinstance(one, ast.Dict) for key in one.keys):
            if isinstance(key, ast.Tuple) and "#" in source[key.lineno - 1]:
                state, move = (part.attr for part in key.elts if isinstance(part, ast.Attribute))
                found[state, move] = source[key.lineno - 1].partition("#")[2].strip()
    return found


def _markdown(text: str) -> str:
    """A docstring as Markdown, with its citations as links."""
    cited = re.sub(r"(\w+\.md) section (\d+(?:\.\d+)?)", _link, text.replace("``", "`"))
    return cited.replace("|", "\\|")


def _link(match: re.Match[str]) -> str:
    heading = next(
        line.lstrip("# ")
        for line in PAGE.with_name(match[1]).read_text("utf-8").splitlines()
        if re.match(rf"#+ {re.escape(match[2])}\.? ", line)
    )
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{match[1].removesuffix('.md')}, section {match[2]}]({match[1]}#{anchor})"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
