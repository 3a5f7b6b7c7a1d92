"""What the tests of the embedded model share: contexts in the template's form, and its output as plain tuples."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterable
from typing import Any

import msgspec

from respserver.engines.base import Batch, SamplingParams
from respserver.engines.sim import Script, Sim, SimSequence
from respserver.schema.items import CallOutputItem, FunctionCallItem, InputPart, MessageItem
from respserver.tokens.parse import ItemBegan, OutputParser, PartBegan, TextDelta
from respserver.tokens.render import Template, call_pieces, message_pieces
from respserver.tokens.tokenizer import Tokenizer

PARAMS = SamplingParams(model="gpt-test")


@functools.cache
def template() -> Template:
    data = importlib.resources.files("respserver.tokens").joinpath("data/tokenizer.json").read_bytes()
    return Template(Tokenizer(data))


def sim(*steps: Any, **options: Any) -> Sim:
    """An engine that plays these steps, or rehearses if there are none."""
    return Sim(template(), script=Script.of(*steps) if steps else None, **options)


def head(*tools: dict[str, Any], instructions: str | None = None) -> list[int]:
    return template().tokenise(template().head(instructions, json.dumps(tools).encode() if tools else b"[]"))


def function(name: str, required: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "name": name, "parameters": parameters}


def user(text: str, role: Any = "user") -> list[int]:
    item = MessageItem(raw=b"{}", role=role, parts=[InputPart(type="input_text", text=text)])
    return template().tokenise(template().item(item))


def said(text: str) -> list[int]:
    """An assistant message as a client resends it."""
    return template().tokenise(message_pieces("assistant", [("text", text)]))


def called(name: str, arguments: str = "{}") -> list[int]:
    item = FunctionCallItem(raw=b"{}", kind="function_call", call_id="call_1", name=name, arguments=arguments)
    return template().tokenise(template().item(item))


def output(*texts: str, name: str = "get_weather", kind: Any = "function_call_output") -> list[int]:
    parts = [InputPart(type="input_text", text=text) for text in texts]
    item = CallOutputItem(raw=b"{}", kind=kind, call_id="call_1", parts=parts, name=name)
    return template().tokenise(template().item(item))


def rendered_call(name: str, text: str) -> list[int]:
    return template().tokenise(call_pieces("function_call", name, text))


async def play(sequence: SimSequence, params: SamplingParams = PARAMS) -> list[Batch]:
    """All batches of one run."""
    batches: list[Batch] = []
    while not batches or not batches[-1].finished:
        batches.append(await sequence.next(params))
    return batches


async def sample(sequence: SimSequence, params: SamplingParams = PARAMS) -> list[tuple[Any, ...]]:
    """The items of one run: ("message", text or refusal parts…), ("reasoning", parts…), (call kind, name, text).

    A function call without arguments has ``{}``, as clients are shown it.
    """
    return read(token for batch in await play(sequence, params) for token in batch.ids)


async def respond(engine: Sim, *context: list[int], **params: Any) -> list[tuple[Any, ...]]:
    """The items that a new sequence with this context answers."""
    sequence = await engine.open()
    for ids in context:
        await sequence.extend(ids)
    items = await sample(sequence, msgspec.structs.replace(PARAMS, **params))
    await sequence.aclose()
    return items


def read(ids: Iterable[int]) -> list[tuple[Any, ...]]:
    parser = OutputParser(template().tokenizer.token_bytes)
    items: list[list[Any]] = []
    for delta in [*parser.feed(list(ids)), *parser.finish()]:
        if isinstance(delta, ItemBegan):
            items.append([delta.kind, delta.name, ""] if delta.name else [delta.kind])
        elif isinstance(delta, PartBegan):
            items[-1].append("refused: " if delta.kind == "refusal" else "")
        elif isinstance(delta, TextDelta):
            items[-1][-1] += delta.text
    for item in items:
        if item[0] == "function_call":
            item[2] = item[2] or "{}"
    return [tuple(item) for item in items]
