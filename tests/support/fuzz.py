"""Seeded bad input: frames and bodies near to what clients send, and what every answer to them must look like."""

from __future__ import annotations

import copy
import json
import random
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.live import TERMINALS, Frame, calls_of, output, tool, user
from tests.support.replay import Replay

KNOWN_PARENTS = 4
LAWFUL_FAILURES = {"context_length_exceeded"}
"""The only code that a turn of the embedded model may fail with."""
LITERALS = {
    **{f"@{raw}@": raw for raw in ("1e999", "-1e999", "NaN", "-0.0", "Infinity", "01", "1.", "tru")},
    "@lone surrogate@": '"\\ud800"',
    "@swapped surrogates@": '"\\udc00\\ud800"',
    "@control character@": '"\x01"',
    "@unknown escape@": '"\\q"',
    **{f"@{depth} lists@": "[" * depth + "]" * depth for depth in (90, 98, 103, 300, 30_000)},
    **{f"@{depth} objects@": '{"a":' * depth + "0" + "}" * depth for depth in (98, 400, 2000)},
}
"""What ``json.dumps`` does not write: a string that stands for it, and the text."""
_LITERAL = re.compile("|".join(f'"{re.escape(name)}"' for name in LITERALS))
_NESTED = re.compile(r'(?<!\[)(\[{50,})(\]{50,})|(?<!\{"a":)((?:\{"a":){50,})0(\}{50,})')
WEIRD_TOOLS: list[Any] = [
    {"type": "function", "name": "get_tide", "parameters": {"type": ["object", 5], "properties": {"a": {"type": {}}}}},
    {"type": "function", "name": "get_it", "parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
    {"type": "function", "name": "read", "parameters": {"properties": 5, "required": ["x", 1, None], "enum": []}},
    {"type": "function", "name": "list", "parameters": {"allOf": [{"not": {}}, False], "pattern": "((a+)+)+$"}},
    {"type": "function", "name": "get_n", "parameters": {"properties": {"n": {"minimum": "@1e999@", "multipleOf": 0}}}},
    {"type": "function", "name": "get_s", "parameters": {"properties": {"s": {"minLength": 10**30, "format": "uuid"}}}},
    {"type": "function", "name": "shell", "parameters": {"properties": {"command": {"type": "array", "minItems": -1}}}},
    {"type": "function", "name": "look", "parameters": True},
    {"type": "function", "name": "\u0000 <|x|>", "parameters": {}, "strict": False},
    {"type": "custom", "name": "exec", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /(/"}},
    {"type": "namespace", "name": "fs", "tools": [tool("read_file"), {"type": "namespace", "name": "in", "tools": []}]},
    {"type": "web_search", "filters": {"\u2028": "@90 lists@"}},
    {"type": "mcp", "server_label": 5},
]
CHOICES: list[Any] = [
    "auto", "none", "required", "any", {"type": "function", "name": "get_tide"}, {"type": "function", "name": "absent"},
    {"type": "custom", "name": "exec"}, {"type": "web_search"}, {"type": "allowed_tools", "tools": []},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_tide"}]},
]  # fmt: skip
OPTIONS: dict[str, list[Any]] = {
    "instructions": ["Be brief.", "", "<|end|> \u2028"],
    "store": [True, False],
    "generate": [True, False],
    "stream": [True, False],
    "stream_options": [{"include_obfuscation": True}, {}],
    "tool_choice": CHOICES,
    "parallel_tool_calls": [False],
    "max_tool_calls": [1],
    "max_output_tokens": [16, 17, 4096],
    "temperature": [0, 2, 0.7],
    "top_p": [0, 1],
    "presence_penalty": [-2],
    "frequency_penalty": [2],
    "top_logprobs": [0, 5],
    "text": [
        {"verbosity": "low"},
        {"format": {"type": "json_object"}},
        {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object", "required": ["a"]}}},
        {"format": {"type": "json_schema", "name": "n", "schema": {"anyOf": [{"const": "@-0.0@"}]}}},
    ],
    "reasoning": [{"effort": "high", "summary": "auto"}, {"generate_summary": "concise"}],
    "include": [["reasoning.encrypted_content"], ["message.output_text.logprobs"]],
    "truncation": ["auto", "disabled"],
    "metadata": [{"a": "b"}, {}],
    "service_tier": ["fast", "auto"],
    "prompt_cache_key": ["k"],
    "prompt_cache_options": [{"prewarm": True}, {"mode": "explicit"}],
    "prompt_cache_retention": ["24h"],
    "safety_identifier": ["s"],
    "user": ["u"],
    "client_metadata": [{"x": 1}],
    "stream_id": ["ää", None],
    "background": [False, True],
    "conversation": ["conv_1"],
    "prompt": [{"id": "p"}],
    "context_management": [[{"type": "compaction"}]],
}  # fmt: skip
ITEMS: list[Any] = [
    user("hello"),
    user(""),
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "https://host.example/a.png"},
        ],
    },
    {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "refusal", "refusal": "no"}]},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "t"}],
        "encrypted_content": None,
    },
    {"type": "function_call", "call_id": "call_b", "name": "x", "arguments": "{}", "status": "incomplete"},
    {"type": "additional_tools", "tools": [tool("get_time"), *WEIRD_TOOLS[:2]]},
    {"type": "compaction", "encrypted_content": None},
    {"type": "shell_call", "call_id": "call_d", "status": "incomplete"},
    {"type": "tool_search_output", "execution": "server", "tools": [tool("get_time")]},
    {"type": "zzz", "deep": "@300 lists@"},
]
BROKEN_ITEMS: list[Any] = [
    {"type": "function_call", "call_id": "call_a", "name": "get_tide", "arguments": "{"},
    {"type": "function_call_output", "call_id": "call_a", "output": "ok"},
    {"type": "custom_tool_call", "call_id": "call_c", "name": "exec", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "call_c", "output": [{"type": "input_text", "text": "ok"}]},
    {"type": "additional_tools", "tools": {"type": "function"}},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
    {"type": "compaction", "encrypted_content": "x"},
    {"type": "shell_call", "call_id": "call_e"},
    {"type": "computer_call_output", "call_id": "call_e", "output": {"image_url": "data:image/png;base64,?"}},
    {"role": "user", "content": [{"type": "input_file", "file_data": "data:,"}, {"type": "input_image"}]},
    {"role": "wizard", "content": 5},
    5,
]
"""Those that need another one beside them, and those that nothing can help."""
OTHER_TYPES: list[Any] = [
    "response.processed", "response.steer", "response.inject", "response.cancel", "response.completed", "error", "",
    "RESPONSE.CREATE", "response.create\u0000", "session.update", 5, None, ["response.create"], {}, "@1e999@",
]  # fmt: skip
STRANGE: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**400, -(10**30), 2**63, "", "x", "\u0000\u001b", "\x7f\u2028\ufeff", "\U0001f600",
    "<|start|><|call|>", "y" * 300, "resp_", "call_a", [], {}, [[]], [None, 1, "a", {}], {"type": 5}, {"": None},
    {"type": "message"}, {"type": "function"}, *LITERALS,
]  # fmt: skip
JUNK = ["\x00", "\n", "\\", '"', "{", "}", "[", ",", ":", "\u2028", "é", "1e", "null", "//", "\r\n\r\n", "data: "]


class Fuzz:
    """Makes frames and bodies; the same seed makes the same ones. ``learn`` lets them fit to what is going on."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self._parents: deque[Frame] = deque(maxlen=KNOWN_PARENTS)

    def learn(self, response: Frame) -> None:
        """A response that may be continued or, if it is suspended, appended to."""
        self._parents.append(response)

    def frame(self) -> str:
        """The text of one frame."""
        makers: list[Callable[[], Any]] = [self._create, self._append, self._other, self._anything]
        is_suspended = bool(self._parents) and self._parents[-1]["status"] == "in_progress"
        (make,) = self.chance.choices(makers, [40, 44, 9, 7] if is_suspended else [76, 8, 9, 7])
        return self._text(make())

    def body(self) -> bytes:
        """The bytes of one POST: a frame's text, sometimes not even UTF-8."""
        fields = self._create()
        if self.chance.random() < 0.5:
            fields["stream"] = True
        body = self._text(fields).encode()
        if self.chance.random() < 0.03:
            at = self.chance.randrange(len(body))
            return body[:at] + b"\xff\xc0" + body[at:]
        return body

    # What is nearly right.

    def _create(self) -> Any:
        fields: Frame = {"type": "response.create", "model": "sim", "input": self._input()}
        if self.chance.random() < 0.5:
            fields["tools"] = [tool("get_tide"), *self.chance.sample(WEIRD_TOOLS, self.chance.choice([0, 0, 1, 3]))]
        if self._parents and self.chance.random() < 0.5:
            parent = self.chance.choice(self._parents)
            fields["previous_response_id"] = parent["id"] if self.chance.random() < 0.9 else "resp_none"
            fields["input"] = [*self._outputs(parent), *self._items(0, 1)]
        for name in self.chance.sample(sorted(OPTIONS), self.chance.choice([0, 0, 1, 2, 4])):
            fields[name] = self.chance.choice(OPTIONS[name])
        return fields

    def _append(self) -> Any:
        parent = self._parents[-1] if self._parents else {"output": [], "id": "resp_none"}
        fields: Frame = {"type": "response.append", "input": [*self._outputs(parent), *self._items(0, 1)]}
        if self.chance.random() < 0.3:
            fields["response_id"] = self.chance.choice([parent["id"], "resp_none"])
        return fields

    def _other(self) -> Any:
        return {**self._create(), "type": self.chance.choice(OTHER_TYPES)}

    def _anything(self) -> Any:
        makers: list[Callable[[], Any]] = [self._strange, lambda: [self._create()], dict, self._items]
        return self.chance.choice(makers)()

    def _input(self) -> Any:
        return self.chance.choice(["hi", "", "tide?", "now?", self._items(), self._items(), "long " * 2000])

    def _items(self, least: int = 1, most: int = 4) -> list[Any]:
        items = self.chance.sample(ITEMS, self.chance.randint(least, most))
        return items + self.chance.sample(BROKEN_ITEMS, self.chance.choice([0, 0, 0, 0, 1, 2]))

    def _outputs(self, response: Frame) -> list[Any]:
        """Outputs of a response's calls: mostly all of them, sometimes too few, twice, or of the wrong kind."""
        outputs = [output(call) for call in calls_of(response)]
        trouble = self.chance.random()
        if outputs and trouble < 0.08:
            outputs.pop()
        elif outputs and trouble < 0.16:
            outputs.append(outputs[0])
        elif outputs and trouble < 0.24:
            outputs[0] = {**outputs[0], "type": self.chance.choice(["custom_tool_call_output", "message"])}
        return outputs

    # What is wrong with it.

    def _text(self, value: Any) -> str:
        value = copy.deepcopy(value)  # the constants above stay as they are
        for _ in range(self.chance.choices([0, 1, 2, 5], [45, 35, 14, 6])[0]):
            value = self._mutate(value)
        if isinstance(value, dict) and isinstance(value.get("stream_id"), str):
            value["stream_id"] = "ää"  # who plays the frames has one lane; however this is damaged, it names none
        indent = 2 if self.chance.random() < 0.1 else None
        text = json.dumps(value, indent=indent)
        text = _LITERAL.sub(lambda found: LITERALS[found[0][1:-1]], text)
        return self._damage(text) if self.chance.random() < 0.12 else text

    def _strange(self) -> Any:
        return copy.deepcopy(self.chance.choice(STRANGE))

    def _mutate(self, value: Any) -> Any:
        places = list(_places(value))
        if not places:
            return self._strange()
        holder, key = self.chance.choice(places)
        kind = self.chance.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif kind == 2 and isinstance(holder, dict):
            holder[self.chance.choice(["zzz", "type", "id", "call_id", "é\u0000", ""])] = copy.deepcopy(holder[key])
        elif kind == 3:
            holder[key] = [holder[key]]
        else:
            holder[key] = self._strange()
        return value

    def _damage(self, text: str) -> str:
        at = self.chance.randrange(len(text) + 1)
        junk = self.chance.choice(JUNK)
        doubled = (
            json.dumps(self.chance.choice(["type", "input", "model", "tools"]))
            + ": "
            + self.chance.choice(['"response.create"', "5", "[]", '"hi"'])
        )
        return self.chance.choice(
            [
                text[:at],
                text[:at] + junk + text[at:],
                text[:at] + text[at + 1 :],
                text[:1] + doubled + "," + text[1:],
                text[:-1] + "," + doubled + text[-1:],
            ]
        )


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place below ``value``, as the container and the key or index."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def type_of(text: str) -> Any:
    """The ``type`` that a frame's text has for Python, None if it is no JSON object."""
    try:
        value = json.loads(_NESTED.sub(_flat, text.replace("\n", "")))
    except (ValueError, RecursionError):
        return None
    return value.get("type") if isinstance(value, dict) else None


def _flat(found: re.Match[str]) -> str:
    """Deep nesting as 0, so that it can be read; brackets around it that look like a part of it stay."""
    opened, closed = (len(found[1]), len(found[2])) if found[1] else (found[3].count("{"), len(found[4]))
    depth = min(opened, closed)
    rest = found[1][depth:] if found[1] else '{"a":' * (opened - depth)
    return f"{rest}0{(found[2] or found[4])[depth:]}"


def check_error(error: Frame, status: int) -> None:
    """A refusal is the client's fault, and it says so: a 4xx with a type, a code, a message, and a place or null."""
    assert 400 <= status < 500, (status, error)
    assert set(error) - {"headers"} == {"type", "code", "message", "param"}
    assert all(isinstance(error[name], str) and error[name] for name in ("type", "code", "message"))
    assert error["param"] is None or (isinstance(error["param"], str) and error["param"])


def check_turn(frames: list[Frame], replay: Replay | None = None) -> Replay:
    """Events add up, and if the last is a terminal one it is no failure of ours."""
    replay = replay or Replay()
    for frame in frames:
        replay.feed(frame)
    if replay.is_over:
        check_end(frames[-1]["response"])
    return replay


def check_end(response: Frame) -> None:
    """A response that is over has completed, was cut, or did not fit."""
    assert f"response.{response['status']}" in TERMINALS
    if response["status"] == "failed":
        assert response["error"]["code"] in LAWFUL_FAILURES, response["error"]


def strict_json(text: str | bytes) -> Any:
    """JSON as a strict client reads it: no NaN, no Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)
