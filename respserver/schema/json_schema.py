"""What structured outputs ask of a JSON schema: the subset that ``strict: true`` promises to follow (protocol.md
sections 6.5 and 6.7).

A schema is walked once, without recursion, and each of its parts costs one step. Only keywords that are known to be
unsupported are refused: annotations, and whatever else is no constraint, pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any  # Any: a schema is JSON of every shape, throughout this file

from respserver.errors import InvalidSchema

MAX_PROPERTIES = 5_000
MAX_LEVELS = 10
"""Objects and arrays inside one another; a ``$ref`` counts no further, so that schemas may be recursive."""
MAX_ENUM_VALUES = 1_000
MAX_NAME_CHARACTERS = 120_000
"""Of all property and definition names and of all texts in ``enum`` and ``const``."""
MAX_PARTS = 20_000
"""Schemas in the schema (ours): alternatives have no bound of their own."""
UNSUPPORTED = (
    *("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"),
    *("minLength", "maxLength", "patternProperties", "propertyNames", "minProperties", "maxProperties"),
    *("unevaluatedProperties", "unevaluatedItems", "prefixItems", "additionalItems", "uniqueItems"),
    *("contains", "minContains", "maxContains"),
)
"""Keywords that constrain and that structured outputs do not follow."""
TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
BESIDE_REFERENCE = frozenset(("$ref", "$defs", "definitions", "$schema", "$id", "$comment"))
DEFINITIONS = ("$defs", "definitions")
MAX_TOLD = 60
"""Characters of a client's own names and values that a message tells."""

Path = tuple[str, ...]


def check_strict(schema: Any, whose: str, param: str, code: str) -> None:
    """Refuse a schema that structured outputs cannot follow. ``whose`` is how the message names its owner, as in
    ``response_format 'tide'``. Raises ``InvalidSchema``."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind != "object":
        got = kind if isinstance(kind, str) else None
        raise InvalidSchema(
            whose, f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{_told(got)}\"'.", param, code
        )
    try:
        _Walk(schema).check()
    except _Fault as fault:
        raise InvalidSchema(whose, str(fault), param, code) from None


class _Fault(Exception):
    """What is wrong, and where."""

    def __init__(self, path: Path, problem: str) -> None:
        # The API writes the place as a tuple of Python.
        place = ", ".join(f"'{_told(step)}'" for step in path) + ("," if len(path) == 1 else "")
        super().__init__(f"In context=({place}), {problem}")


class _Walk:
    """One pass over a schema, which counts what it meets."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._waiting: list[tuple[Any, Path, int]] = [(root, (), 1)]
        self._parts = self._properties = self._enum_values = self._characters = 0

    def check(self) -> None:
        """Raises ``_Fault`` for the first thing that is wrong."""
        while self._waiting:
            schema, path, level = self._waiting.pop()
            self._parts = _count(path, self._parts, 1, MAX_PARTS, "schemas")
            inner = list(self._inside(schema, path, level))
            self._waiting += reversed(inner)  # so that the first fault told is the first one written

    def _inside(self, schema: Any, path: Path, level: int) -> Iterator[tuple[Any, Path, int]]:
        """Check one schema; the schemas in it."""
        if not isinstance(schema, Mapping):
            raise _Fault(path, "schema must be an object.")
        for keyword in UNSUPPORTED:
            if keyword in schema:
                raise _Fault(path, f"'{keyword}' is not permitted.")
        for key in DEFINITIONS:
            yield from self._named(schema.get(key, {}), (*path, key), level)
        if "$ref" in schema:
            self._check_reference(schema, path)
            return
        kinds = _kinds(schema, path)
        self._check_values(schema, path)
        if "anyOf" in schema:
            yield from _alternatives(schema["anyOf"], path, level)
        elif not kinds and "enum" not in schema and "const" not in schema:
            raise _Fault(path, "schema must have a 'type' key.")
        if "object" in kinds or "array" in kinds:
            if level > MAX_LEVELS:
                raise _Fault(path, f"schema is nested more than {MAX_LEVELS} levels deep.")
            if "object" in kinds:
                yield from self._object(schema, path, level)
            if "array" in kinds:
                if "items" not in schema:
                    raise _Fault(path, "array schema missing items.")
                yield schema["items"], (*path, "items"), level + 1

    def _object(self, schema: Mapping[str, Any], path: Path, level: int) -> Iterator[tuple[Any, Path, int]]:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise _Fault(path, "'properties' must be an object of schemas.")
        # No properties and no word about others is how people write "no arguments"; it is taken for that (ours).
        if schema.get("additionalProperties", None if properties else False) is not False:
            raise _Fault(path, "'additionalProperties' is required to be supplied and to be false.")
        self._properties = _count(path, self._properties, len(properties), MAX_PROPERTIES, "object properties")
        _check_required(schema.get("required", []), properties, path)
        yield from self._named(properties, (*path, "properties"), level + 1)

    def _named(self, schemas: Any, path: Path, level: int) -> Iterator[tuple[Any, Path, int]]:
        """The schemas of properties or definitions, whose names count."""
        if not isinstance(schemas, Mapping):
            raise _Fault(path, "expected an object of schemas.")
        self._count_characters(path, schemas)
        for name, schema in schemas.items():
            yield schema, (*path, name), level

    def _check_values(self, schema: Mapping[str, Any], path: Path) -> None:
        values = schema.get("enum", [])
        if not isinstance(values, list) or ("enum" in schema and not values):
            raise _Fault(path, "'enum' must be an array with at least one value.")
        self._enum_values = _count(path, self._enum_values, len(values), MAX_ENUM_VALUES, "enum values")
        self._count_characters(path, [*values, schema.get("const")])

    def _count_characters(self, path: Path, texts: Any) -> None:
        characters = sum(len(text) for text in texts if isinstance(text, str))
        words = "characters of names and of values in 'enum' and 'const'"
        self._characters = _count(path, self._characters, characters, MAX_NAME_CHARACTERS, words)

    def _check_reference(self, schema: Mapping[str, Any], path: Path) -> None:
        beside = sorted(schema.keys() - BESIDE_REFERENCE)
        if beside:
            raise _Fault(path, f"$ref cannot have keywords {{'{_told(beside[0])}'}}.")
        reference = schema["$ref"]
        if not isinstance(reference, str) or not self._is_here(reference):
            raise _Fault(path, f"reference to '{_told(reference)}', which was not found in the schema.")

    def _is_here(self, reference: str) -> bool:
        """Whether a reference names the root or something in it."""
        if reference == "#":
            return True
        at: Any = self._root
        names = reference.split("/", MAX_LEVELS)
        for name in names[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, Mapping) or name not in at:
                return False
            at = at[name]
        return names[0] == "#"


def _kinds(schema: Mapping[str, Any], path: Path) -> set[str]:
    given = schema.get("type", [])
    kinds: set[str] = set()
    for kind in given if isinstance(given, list) else [given]:
        if not isinstance(kind, str) or kind not in TYPES:
            raise _Fault(path, f"'{_told(kind)}' is not valid under any of the given schemas.")
        kinds.add(kind)
    return kinds


def _alternatives(given: Any, path: Path, level: int) -> Iterator[tuple[Any, Path, int]]:
    if level == 1 and not path:
        raise _Fault(path, "'anyOf' is not permitted.")
    if not isinstance(given, list) or not given:
        raise _Fault(path, "'anyOf' must be an array with at least one schema.")
    _count(path, 0, len(given), MAX_PARTS, "schemas")
    for index, schema in enumerate(given):
        yield schema, (*path, "anyOf", str(index)), level


def _check_required(required: Any, properties: Mapping[str, Any], path: Path) -> None:
    words = "'required' is required to be supplied and to be an array including every key in properties."
    if not isinstance(required, list):
        raise _Fault(path, words)
    for name in required:
        if not isinstance(name, str) or name not in properties:
            raise _Fault(path, f"Extra required key '{_told(name)}' supplied.")
    named = frozenset(required)
    for name in properties:
        if name not in named:
            raise _Fault(path, f"{words} Missing '{_told(name)}'.")


def _count(path: Path, so_far: int, more: int, most: int, what: str) -> int:
    if so_far + more > most:
        raise _Fault(path, f"schema has too many {what}. Expected at most {most}.")
    return so_far + more


def _told(value: Any) -> str:
    text = value if isinstance(value, str) else "None" if value is None else "…"
    return text if len(text) <= MAX_TOLD else f"{text[: MAX_TOLD - 1]}…"
