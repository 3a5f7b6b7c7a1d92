"""Whether a value satisfies a JSON schema: the keywords that tool and answer schemas use, with bounded work.

It judges the candidates of ``schema_value.py`` and is no general validator: keywords it does not know hold, and so does
every ``pattern``, because a client's regular expression is never run (see ``schema_text.py``). All that a schema can
make long is paid for from one budget: not only the visits, but also a list that is searched at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any  # Any: schemas and their values are JSON of every shape, throughout this file

BUDGET = 5_000
"""Steps that one value may cost, 3 microseconds each; a schema that branches into itself would otherwise never end."""
STEP = 16
"""Entries of a list or mapping that are compared or copied in one step."""
TEXT_STEP = 128
"""Characters of a value in one step: it is said afterwards, so that long values cost more than their making."""
MAX_BITS = 1_024
"""Of an integer: about the range of floats, and far below what Python refuses to print."""
MAX_REFERENCE = 1_000
"""Characters of a ``$ref`` that is followed."""


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number: Python counts booleans among them."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(schema: Mapping[str, Any], key: str) -> float | None:
    """A keyword's number, None if it has none or one of hundreds of digits."""
    value = schema.get(key)
    if not is_number(value) or (isinstance(value, int) and value.bit_length() > MAX_BITS):
        return None
    return value


class TooComplex(Exception):
    """The budget is used up."""


class Validator:
    """Judges values against one root schema and its definitions."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = BUDGET

    def spend(self, steps: int = 1) -> None:
        """Count a schema visit, or so many steps. Raises ``TooComplex`` when there were too many."""
        self._left -= steps
        if self._left < 0:
            raise TooComplex

    def spend_on(self, entries: int) -> None:
        """Count the handling of so many entries. Raises ``TooComplex``."""
        self.spend(entries // STEP)

    def resolve(self, reference: Any) -> Any:
        """What a local ``$ref`` points to; True, which accepts everything, if that is nowhere here."""
        if not isinstance(reference, str) or not reference.startswith("#") or len(reference) > MAX_REFERENCE:
            return True
        target = self._root
        for name in reference[1:].lstrip("/").split("/") if len(reference) > 1 else ():
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            elif isinstance(target, Mapping) and name in target:
                target = target[name]
            else:
                return True
        return target

    def accepts(self, value: Any, schema: Any) -> bool:
        """Whether ``value`` satisfies ``schema``. Raises ``TooComplex``."""
        self.spend(1 + _text_length(value) // TEXT_STEP)
        if not isinstance(schema, Mapping):
            return schema is not False
        if "$ref" in schema and not self.accepts(value, self.resolve(schema["$ref"])):
            return False
        self.spend_on(len(_list(schema, "type")) + len(_list(schema, "enum")) + len(_list(schema, "required")))
        if "type" in schema and not _has_type(value, schema["type"]):
            return False
        if "const" in schema and not _equal(value, schema["const"]):
            return False
        if isinstance(schema.get("enum"), list) and not any(_equal(value, entry) for entry in schema["enum"]):
            return False
        return self._combined(value, schema) and self._inside(value, schema)

    def _combined(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if not all(self.accepts(value, part) for part in _list(schema, "allOf")):
            return False
        if "anyOf" in schema and not any(self.accepts(value, part) for part in _list(schema, "anyOf")):
            return False
        if "oneOf" in schema and sum(self.accepts(value, part) for part in _list(schema, "oneOf")) != 1:
            return False
        return not ("not" in schema and self.accepts(value, schema["not"]))

    def _inside(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if isinstance(value, str):
            return _within(len(value), schema, "Length")
        if isinstance(value, list):
            return self._array_holds(value, schema)
        if isinstance(value, Mapping):
            return self._object_holds(value, schema)
        return not is_number(value) or _number_holds(value, schema)

    def _array_holds(self, value: list[Any], schema: Mapping[str, Any]) -> bool:
        if not _within(len(value), schema, "Items"):
            return False
        if schema.get("uniqueItems") is True and not self._all_differ(value):
            return False
        first = _list(schema, "prefixItems")
        items = schema.get("items", True)
        return all(
            self.accepts(entry, first[index] if index < len(first) else items) for index, entry in enumerate(value)
        )

    def _all_differ(self, value: list[Any]) -> bool:
        self.spend_on(len(value) ** 2)
        return not any(_equal(entry, other) for index, entry in enumerate(value) for other in value[:index])

    def _object_holds(self, value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        if not _within(len(value), schema, "Properties"):
            return False
        if any(isinstance(name, str) and name not in value for name in _list(schema, "required")):
            return False
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        others = schema.get("additionalProperties", True)
        return all(self.accepts(entry, known.get(name, others)) for name, entry in value.items())


_TYPE_TESTS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: is_number(value) and value == value // 1,
    "number": lambda value: is_number(value),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _text_length(value: Any) -> int:
    """The text of a value itself, names included, but not what is inside its entries."""
    if isinstance(value, Mapping):
        return sum(map(len, value))
    return len(value) if isinstance(value, str) else 0


def _has_type(value: Any, given: Any) -> bool:
    names = given if isinstance(given, list) else [given]
    return any(name not in _TYPE_TESTS or _TYPE_TESTS[name](value) for name in names if isinstance(name, str))


def _equal(value: Any, other: Any) -> bool:
    """Equality of JSON: true is not 1."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def _number_holds(value: float, schema: Mapping[str, Any]) -> bool:
    low, high = number(schema, "minimum"), number(schema, "maximum")
    above, below = number(schema, "exclusiveMinimum"), number(schema, "exclusiveMaximum")
    if (low is not None and value < low) or (high is not None and value > high):
        return False
    if (above is not None and value <= above) or (below is not None and value >= below):
        return False
    unit = number(schema, "multipleOf")
    return unit is None or unit <= 0 or (value / unit) % 1 == 0


def _within(size: int, schema: Mapping[str, Any], what: str) -> bool:
    low, high = number(schema, f"min{what}"), number(schema, f"max{what}")
    return (low is None or size >= low) and (high is None or size <= high)


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
