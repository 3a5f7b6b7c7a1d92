"""A small value that satisfies a JSON schema, always the same one for the same schema.

Only required properties are filled in. Schemas come from clients, so the work is bounded: whatever does not fit the
bounds, or contradicts itself, ends in a plain value instead of an error. Nothing here knows of tools or tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any  # Any: schemas and their values are JSON of every shape, throughout this file

from respserver.engines.sim.schema_check import MAX_BITS, STEP, TooComplex, Validator, is_number, number
from respserver.engines.sim.schema_text import MAX_LENGTH, MAX_PATTERN, text_of

MAX_ITEMS = 64
"""More items than this are not made, whatever ``minItems`` asks, nor are values taken that a schema spells out: each is
compared with many others, so that a comparison must not cost much."""
MAX_RECURSION = 3
"""How often a value may pass through the same ``$ref`` on its way down."""
_LISTS = ("required", "allOf", "examples", "enum")
_COMBINING = ("$ref", "allOf", "anyOf", "oneOf")
_TYPES = ("string", "object", "array", "integer", "number", "boolean", "null")
_KEYS_OF_TYPE = (
    ({"properties", "required", "additionalProperties", "minProperties"}, "object"),
    ({"items", "prefixItems", "minItems", "maxItems"}, "array"),
    ({"pattern", "format", "minLength", "maxLength"}, "string"),
    ({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}, "number"),
)


def schema_value(schema: Any, *, sparse: bool = False) -> Any:
    """A value for ``schema``.

    ``sparse`` takes null wherever null is allowed, which is how strict tools leave an argument out; without it null is
    the last choice. An impossible or overlong schema gets the nearest plain value.
    """
    maker = _Maker(schema, sparse)
    try:
        return maker.make(schema, ())
    except (TooComplex, RecursionError, ArithmeticError, ValueError):
        return maker.plain(schema)


class _Maker:
    """Tries candidates and keeps the first that the validator accepts. ``open_refs`` are the ``$ref`` being followed:
    a place that needs one too often has no candidate, so that the branch above it is tried instead."""

    def __init__(self, root: Any, sparse: bool) -> None:
        self._validator = Validator(root)
        self._sparse = sparse

    def make(self, schema: Any, open_refs: tuple[str, ...]) -> Any:
        """The first candidate that the schema accepts, null last unless sparse; if it accepts none, the first."""
        first: list[Any] = []
        null_is_accepted = False
        for candidate in self._candidates(schema, open_refs):
            if self._validator.accepts(candidate, schema):
                if candidate is not None or self._sparse:
                    return candidate
                null_is_accepted = True
            first.append(candidate)
        if null_is_accepted:
            return None
        return first[0] if first else self.plain(schema)

    def plain(self, schema: Any) -> Any:
        """A value of the schema's outermost type, without looking further."""
        kind = _kinds(schema)[0] if isinstance(schema, Mapping) else "string"
        values = {"object": {}, "array": [], "integer": 0, "number": 0, "boolean": False, "null": None}
        return values.get(kind, "example")

    def _candidates(self, schema: Any, open_refs: tuple[str, ...]) -> Iterator[Any]:
        self._validator.spend()
        if not isinstance(schema, Mapping):
            yield from () if schema is False else ("example",)
            return
        if self._sparse and self._validator.accepts(None, schema):
            yield None
        for value in _named(schema):
            self._validator.spend()
            if _is_small(value):
                yield value
        if "const" in schema or isinstance(schema.get("enum"), list):
            return
        if any(key in schema for key in _COMBINING):
            for branch, refs in self._branches(schema, open_refs):
                yield from self._candidates(branch, refs)
        else:
            self._validator.spend_on(len(_as_list(schema.get("type"))))
            for kind in _kinds(schema):
                yield from self._of_kind(kind, schema, open_refs)

    def _branches(self, schema: Mapping[str, Any], open_refs: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
        """The schema with one of its combining keywords worked in; several are worked in one after the other."""
        self._validator.spend_on(len(schema))
        rest: Any = dict(schema)
        keyword = next(key for key in _COMBINING if key in rest)
        given = rest.pop(keyword)
        if keyword == "$ref" and isinstance(given, str):
            if open_refs.count(given) < MAX_RECURSION:
                yield self._merged(rest, self._validator.resolve(given)), (*open_refs, given)
        elif not isinstance(given, list):
            yield rest, open_refs
        elif keyword == "allOf":
            for part in given:
                rest = self._merged(rest, self._resolved(part))
            yield rest, open_refs
        else:
            for part in given:
                yield self._merged(rest, part), open_refs

    def _resolved(self, part: Any) -> Any:
        if isinstance(part, Mapping) and "$ref" in part:
            self._validator.spend()
            self._validator.spend_on(len(part))
            rest = {key: value for key, value in part.items() if key != "$ref"}
            return self._merged(rest, self._resolved(self._validator.resolve(part["$ref"])))
        return part

    def _of_kind(self, kind: str, schema: Mapping[str, Any], open_refs: tuple[str, ...]) -> Iterator[Any]:
        match kind:
            case "object":
                yield self._object(schema, open_refs)
            case "array":
                yield self._array(schema, open_refs)
            case "string":
                self._validator.spend(_pattern_length(schema))
                yield from text_of(schema)
            case "integer" | "number":
                yield from _numbers(schema, whole=kind == "integer")
            case "boolean":
                yield from (True, False)
            case _:
                yield None

    def _object(self, schema: Mapping[str, Any], open_refs: tuple[str, ...]) -> dict[str, Any]:
        properties, required = schema.get("properties"), schema.get("required")
        known = properties if isinstance(properties, Mapping) else {}
        names = required if isinstance(required, list) else []
        others = schema.get("additionalProperties", True)
        self._validator.spend_on(len(names))
        value = {name: self.make(known.get(name, others), open_refs) for name in names if _is_name(name)}
        wanted = min(_count(schema, "minProperties"), MAX_ITEMS)
        if len(value) < wanted:
            self._validator.spend_on(len(known))
            spare = [name for name in known if name not in value and _is_name(name)]
            spare += [f"key{number}" for number in range(wanted)]
            for name in spare[: wanted - len(value)]:
                value[name] = self.make(known.get(name, others), open_refs)
        return value

    def _array(self, schema: Mapping[str, Any], open_refs: tuple[str, ...]) -> list[Any]:
        prefix = schema.get("prefixItems")
        first = prefix if isinstance(prefix, list) else []
        is_unique = schema.get("uniqueItems") is True
        value: list[Any] = []
        for index in range(min(_count(schema, "minItems"), MAX_ITEMS)):
            entry = first[index] if index < len(first) else schema.get("items", True)
            value.append(self._another(entry, value, open_refs) if is_unique else self.make(entry, open_refs))
        return value

    def _another(self, schema: Any, taken: list[Any], open_refs: tuple[str, ...]) -> Any:
        """A value that is not yet in the list: another candidate, or the usual one with a number to it."""
        for candidate in self._candidates(schema, open_refs):
            if candidate not in taken and self._validator.accepts(candidate, schema):
                return candidate
        usual = self.make(schema, open_refs)
        if is_number(usual):
            return usual + len(taken)
        return f"{usual}{len(taken)}" if isinstance(usual, str) else usual

    # Any: "no schema at all" is a boolean, and malformed ones are whatever the client wrote
    def _merged(self, base: Any, extra: Any) -> Any:
        """Both schemas at once, as far as one schema can say it; the validator has the last word."""
        if not isinstance(base, Mapping):
            return False if base is False else extra
        if not isinstance(extra, Mapping):
            return False if extra is False else base
        self._validator.spend_on(len(base) + len(extra))
        merged = {**extra, **base}
        for key in base.keys() & extra.keys():
            merged[key] = self._both(key, base[key], extra[key])
        return merged

    def _both(self, key: str, mine: Any, theirs: Any) -> Any:
        if key == "properties" and isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            self._validator.spend_on(len(theirs) + len(mine) * STEP)
            return {**theirs, **{name: self._merged(mine[name], theirs.get(name, True)) for name in mine}}
        if key in _LISTS and isinstance(mine, list) and isinstance(theirs, list):
            self._validator.spend_on(len(mine) * len(theirs) if key == "enum" else len(mine) + len(theirs))
            return _both_lists(key, mine, theirs)
        if key == "type":
            return _common_types(mine, theirs)
        if key.startswith(("min", "exclusiveMin")) and is_number(mine) and is_number(theirs):
            return max(mine, theirs)
        if key.startswith(("max", "exclusiveMax")) and is_number(mine) and is_number(theirs):
            return min(mine, theirs)
        return mine


def _named(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Values that the schema spells out itself."""
    for key in ("const", "default"):
        if key in schema:
            yield schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list):
            yield from schema[key]


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Types to try, the most telling first and null last."""
    given = schema.get("type")
    if isinstance(given, str):
        return [given]
    if isinstance(given, list):
        named = [kind for kind in given if kind in _TYPES] or ["string"]
    else:
        told = [kind for keys, kind in _KEYS_OF_TYPE if any(key in schema for key in keys)]
        named = told + [kind for kind in _TYPES if kind not in told]
    return sorted(named, key=lambda kind: kind == "null")


def _is_small(value: Any) -> bool:
    """Whether a value that a schema spells out is short enough to compare and to send."""
    left = MAX_ITEMS
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (list, Mapping)):
            left -= len(one)
            if left < 0:
                return False
            waiting += one.values() if isinstance(one, Mapping) else one
        elif _is_long(one):
            return False
    return True


def _is_long(scalar: Any) -> bool:
    if isinstance(scalar, str):
        return len(scalar) > MAX_LENGTH
    return isinstance(scalar, int) and scalar.bit_length() > MAX_BITS


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= MAX_LENGTH


def _pattern_length(schema: Mapping[str, Any]) -> int:
    pattern = schema.get("pattern")
    return min(len(pattern), MAX_PATTERN) if isinstance(pattern, str) else 0


def _both_lists(key: str, mine: list[Any], theirs: list[Any]) -> list[Any]:
    if key == "enum":
        return [entry for entry in mine if _is_small(entry) and entry in theirs]
    return mine + theirs


def _common_types(mine: Any, theirs: Any) -> Any:
    ours, others = ([kind for kind in _TYPES if kind in _as_list(given)] for given in (mine, theirs))
    if not ours or not others:
        return mine
    common = [kind for kind in ours if kind in others]
    if not common and "integer" in ours + others:
        return "integer"
    return common or mine


def _as_list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _numbers(schema: Mapping[str, Any], whole: bool) -> Iterator[float]:
    """Numbers at or near the lower bound, 1 if there is none, that are multiples of ``multipleOf``."""
    low = max(
        (bound for key in ("minimum", "exclusiveMinimum") if (bound := number(schema, key)) is not None), default=None
    )
    high = min(
        (bound for key in ("maximum", "exclusiveMaximum") if (bound := number(schema, key)) is not None), default=None
    )
    unit = number(schema, "multipleOf") or 1
    start = low if low is not None else min(1, high) if high is not None else 1
    base = start // unit * unit
    for near in (base, base + unit, base + 2 * unit, base - unit):
        yield int(near) if whole or near == int(near) else near
    if not whole and low is not None and high is not None:
        yield (low + high) / 2
    yield start


def _count(schema: Mapping[str, Any], key: str) -> int:
    return max(0, int(number(schema, key) or 0))
