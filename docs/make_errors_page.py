"""Writes docs/errors.md from the errors of the package; ``tests/test_docs_pages.py`` checks that it is so.

Run it after a change of an error: ``python docs/make_errors_page.py``. Statuses, codes, types, params and hints are
those of the classes and of the places that raise them; messages are made by the classes themselves, from the values in
``SAMPLES``. What a code means is said by the docstring of its class, unless docs/errors.toml has better words. Where an
error shows and what a client should do stands there, too, unless it is the usual.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import pkgutil
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import respserver
from respserver.errors import ApiError, InvalidField
from respserver.schema import codec

PAGE = Path(__file__).with_name("errors.md")
PACKAGE = Path(respserver.__file__).parent
NOT_SENT = (PACKAGE / "client", PACKAGE / "testing")
"""Rooms whose errors are not the server's."""
STEER_STATUS = 400
"""What errors of steering have for a status, which is never told."""
OPEN = "…"
"""What stands in a message for words that are only known when it is made."""

NEAR = 4
"""Lines above a call where a text may have got the name by which the call knows it."""

HEAD = """\
# Errors

<!-- Made by docs/make_errors_page.py; change that, docs/errors.toml or the errors themselves. -->

Every code that the server sends, by status. What an error looks like on a socket, over HTTP and in `response.failed` is
in [section 4 of the protocol](protocol.md#4-errors); the rules behind the codes are in the sections that its
[table](protocol.md#42-codes) names. `code` is what programs should look at: messages are for people, and quote what was
sent. Those below are examples; `…` stands for words that depend on the request. Retry hints are headers: over HTTP of
the answer, on a socket inside the error frame. Codes without a status, at the end, are those of steering alone:
`response.steer.failed` tells type, code and message.
"""


class Place(enum.StrEnum):
    """Where an error shows."""

    BOTH = "an error frame, or an HTTP answer"
    HTTP = "an HTTP answer"
    UPGRADE = "an HTTP answer to the upgrade"
    REQUEST = "an HTTP answer, to an upgrade too"
    FRAME = "an error frame"
    STEER = "`response.steer.failed`"
    HTTP_OR_STEER = "an HTTP answer, or `response.steer.failed`"
    FAILED = "`response.failed`"
    FAILED_OR_HTTP = "`response.failed`; an HTTP answer if the client waits for JSON"
    FRAME_OR_FAILED = "an error frame, or `response.failed`"
    ANYWHERE = "an error frame, an HTTP answer, or `response.failed`"


SAID: dict[str, dict[str, Any]] = tomllib.loads(PAGE.with_suffix(".toml").read_text("utf-8"))
"""By code: where it ``shows``, what it ``means`` and ``says``, and what to ``do`` about it."""


def place_of(code: str) -> Place:
    return Place[_said(code, "shows", "both").upper()]


def _said(code: str, what: str, usual: Any) -> Any:
    return SAID.get(code, {}).get(what, usual)


def _usual_advice(status: int, has_hint: bool) -> str:
    if has_hint:
        return "Send the same again after the time of the hint."
    if status == 429:
        return "Send the same again later."
    if status >= 500:
        return "Send it again; if it stays, look into the server's log."
    return "Change the request: it gets the same answer again."


SAMPLES: dict[str, Any] = {
    "response_id": "resp_8f4d",
    "call_id": "call_8cfe",
    "param": "FIELD",
    "method": "PUT",
    "path": "/v1/responses",
    "model": "gpt-x",
    "minutes": 60.0,
    "seconds": 600.0,
    "waiting": 64,
    "limit": 1000,
    "owner": "connection",
    "kind": "requests",
    "tenant": "default",
    "used": 1000,
    "wait": 1.337,
    "name": "response.go",
    "given": True,
    "status": None,
    "code": None,
    "type": None,
}
"""Values for the arguments of errors, by name; what is not here is left out if it may be, else it is ``OPEN``."""
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "QueueFull": [{"size": 67_108_864}],
    "RateLimitExceeded": [{"kind": "tokens"}],
    "TooManySteers": [{"size": 67_108_864}],
}
"""Arguments for which an error is shown a second time, since more than a number in its words depends on them."""


class Source(NamedTuple):
    """One way in which a code comes about."""

    status: int
    code: str
    type: str
    param: str | None
    message: str
    headers: tuple[str, ...]
    meaning: str = ""
    """Of the class, if the code is its own."""


def page() -> str:
    """The whole page, as Markdown."""
    found: dict[str, list[Source]] = {}
    for source in sources():
        found.setdefault(source.code, []).append(source)
    ordered = sorted(found, key=lambda code: (place_of(code) is Place.STEER, found[code][0].status, code))
    index = [f"| {_index_status(code, found[code])} | [`{code}`](#{code}) | {place_of(code)} |" for code in ordered]
    sections = [_section(code, found[code]) for code in ordered]
    return "\n".join([HEAD, "| status | code | shows as |", "| --- | --- | --- |", *index, "", *sections])


def _index_status(code: str, made: list[Source]) -> str:
    if place_of(code) in (Place.STEER, Place.HTTP_OR_STEER):
        made = [one for one in made if one.status != STEER_STATUS]
    return _statuses(made, ", ")


@functools.cache
def sources() -> tuple[Source, ...]:
    """All ways in which the package makes an error that a client is told."""
    return tuple(dict.fromkeys([*_of_classes(), *_of_bounds(), *_of_calls()]))


def error_classes() -> list[type[ApiError]]:
    """The package's errors that clients are told, those with a code of their own first, then by name."""
    for module in pkgutil.walk_packages(respserver.__path__, "respserver."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[ApiError]] = set()
    waiting: list[type[ApiError]] = [ApiError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        path = Path(inspect.getfile(kind))
        if PACKAGE in path.parents and not any(room in path.parents for room in NOT_SENT):
            found.add(kind)
    return sorted(found, key=lambda kind: ("code" not in vars(kind), kind.__name__))


def _section(code: str, made: list[Source]) -> str:
    headers = sorted({header for one in made for header in one.headers})
    told = f", with {' and '.join(f'`{header}`' for header in headers)}" if headers else ""
    usual = _usual_advice(made[0].status, any(header.startswith("retry-after") for header in headers))
    meanings = [means] if (means := _said(code, "means", "")) else dict.fromkeys(one.meaning for one in made)
    messages = _said(code, "says", [*dict.fromkeys(one.message for one in made if one.message.strip(f" {OPEN}."))])
    lines = [f"### `{code}`\n", *(f"{_filled(meaning)}\n" for meaning in meanings if meaning)]
    if messages:
        lines += ["```text", *messages, "```\n"]
    return "\n".join([
        *lines,
        _filled(f"- {_shape(place_of(code), made)}", "  "),
        f"- Shows as {place_of(code)}{told}",
        _filled(f"- What to do: {_said(code, 'do', usual)}", "  "),
        "",
    ])  # fmt: skip


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _shape(place: Place, made: list[Source]) -> str:
    """What the error object has beside its code and message."""
    if place is Place.STEER:
        return f"Type {_types(made)}; this event has neither a status nor `param`"
    if place is Place.HTTP_OR_STEER:
        over_http = _shape(Place.HTTP, [one for one in made if one.status != STEER_STATUS])
        return f"{over_http}; `response.steer.failed` has neither a status nor `param`"
    return f"Status {_statuses(made, ' or ')}, type {_types(made)}{_params(made)}"


def _statuses(made: list[Source], between: str) -> str:
    return between.join(str(status) for status in sorted({one.status for one in made}))


def _types(made: list[Source]) -> str:
    return " or ".join(f"`{name}`" for name in dict.fromkeys(one.type for one in made))


def _params(made: list[Source]) -> str:
    params = dict.fromkeys(one.param for one in made if one.param)
    if not params:
        return ""
    if any(OPEN in param or SAMPLES["param"] in param for param in params):
        return ", `param` names the field"
    return f", `param` {' or '.join(f'`{param}`' for param in params)}"


# -------------------------------------------------------------------------------------------------- from the classes


def _of_classes() -> Iterator[Source]:
    for kind in error_classes():
        is_own = kind is not ApiError and ("code" in vars(kind) or ApiError in kind.__bases__)
        for given in ({}, *VARIANTS.get(kind.__name__, ())):
            error = _example(kind, given)
            if error is not None:
                yield _source(kind, error, _meaning(kind) if is_own else "")


def _meaning(kind: type[ApiError]) -> str:
    """The first sentence of the docstring, without a clause about an argument."""
    text = " ".join((inspect.getdoc(kind) or "").split()).replace("``", "`")
    sentence = text.partition(". ")[0].rstrip(".")
    for name in inspect.signature(kind).parameters:
        sentence = sentence.partition(f"; `{name}`")[0]
    return f"{sentence}."


def _example(kind: type[ApiError], given: dict[str, Any]) -> ApiError | None:
    """An error as the class makes it, from what is given and, for the rest, from samples."""
    values = dict(given)
    for name, argument in inspect.signature(kind).parameters.items():
        is_needed = argument.default is inspect.Parameter.empty
        if name not in values and argument.kind is not inspect.Parameter.VAR_KEYWORD and is_needed:
            values[name] = SAMPLES.get(name, OPEN)
    try:
        return kind(**values)
    except (TypeError, ValueError, KeyError):  # an argument that no text can stand for
        return None


def _source(kind: type[ApiError], error: ApiError, meaning: str = "") -> Source:
    # Without words of its own a class is raised with other ones each time.
    message = "" if error.message == ApiError.sentence and kind is not ApiError else error.message
    return Source(error.status, error.code, error.type, error.param, message, tuple(error.headers), meaning)


def _of_bounds() -> Iterator[Source]:
    for _, code, words in codec._BOUNDS:
        error = InvalidField(SAMPLES["param"], f"{words.format(OPEN)}, but got {OPEN} instead.", code)
        yield _source(InvalidField, error)


# ------------------------------------------------------------------------------------ from the places that raise them


def _of_calls() -> Iterator[Source]:
    """Calls that give an error a code, a status or words of their own."""
    kinds = {kind.__name__: kind for kind in error_classes()}
    files = [
        list(ast.walk(ast.parse(path.read_text("utf-8"))))
        for path in sorted(PACKAGE.rglob("*.py"))
        if not any(room in path.parents for room in NOT_SENT)
    ]
    passing_on = {name: place for nodes in files for name, place in _passing_on(nodes)}
    for nodes in files:
        texts = _texts(nodes)
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id in kinds:
                yield from _of_call(kinds[node.func.id], node, texts)
            elif node.func.id in passing_on:
                given = node.args[passing_on[node.func.id] :][:1]
                given += [one.value for one in node.keywords if one.arg == "code"]
                for code in (
                    one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ):
                    error = InvalidField(SAMPLES["param"], OPEN, code)
                    yield _source(InvalidField, error)._replace(message="")


def _passing_on(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Functions that take the code of the error which they make, and where it stands among their arguments."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
            makes_errors = node.returns is not None and "Invalid" in ast.unparse(node.returns)
            if "code" in names and (makes_errors or any(isinstance(one, ast.Raise) for one in ast.walk(node))):
                yield node.name, names.index("code")


def _texts(nodes: list[ast.AST]) -> list[tuple[str, int, ast.expr]]:
    """Texts that have a name before an error is made of them, with the name and the line."""
    return [
        (node.targets[0].id, node.lineno, node.value)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_text(node.value)
    ]


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _of_call(kind: type[ApiError], call: ast.Call, texts: list[tuple[str, int, ast.expr]]) -> Iterator[Source]:
    names = inspect.signature(kind).parameters
    written = dict(zip(names, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
    says = {name for name, node in written.items() if isinstance(node, ast.Constant | ast.JoinedStr | ast.IfExp)}
    if not says & {"code", "status", "message"}:
        return
    values = {name: _values(name, node, texts) for name, node in written.items() if name != "headers"}
    for way in range(max(len(each) for each in values.values())):
        # Alternatives of several arguments go together: a code and its message are chosen by the same question.
        error = _example(kind, {name: each[min(way, len(each) - 1)] for name, each in values.items()})
        if error is not None:
            yield _source(kind, error)


def _values(name: str, node: ast.expr, texts: list[tuple[str, int, ast.expr]]) -> list[Any]:
    """What an argument can be, as far as it stands there: the rest of a text is ``OPEN``."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else OPEN for part in node.values)
        return ["".join(parts)]
    if isinstance(node, ast.IfExp):
        return [*_values(name, node.body, texts), *_values(name, node.orelse, texts)]
    if isinstance(node, ast.Name) and name in ("problem", "message"):
        near = [text for known, line, text in texts if known == node.id and 0 < node.lineno - line < NEAR]
        if near:
            return _values(name, near[-1], texts)
    return [SAMPLES.get(name, OPEN)]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
