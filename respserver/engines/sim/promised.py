"""What an answer must be where the request constrains it: JSON mode, and a schema with ``strict: true``.

A real model that is held to a format cannot say anything else, whatever it would like to. A script can; so its text is
looked at before it is said, and what could never come from a real model is a fault, not an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any  # Any: answers and schemas are JSON of every shape, throughout this file

import msgspec

from respserver.engines.base import SamplingParams
from respserver.engines.sim.schema_check import TooComplex, Validator
from respserver.engines.sim.script import Call, Custom, Fault, Output, Text
from respserver.errors import ModelFault

_FREE = (Call, Custom, Fault)
"""Beside a call a text is a preamble and no answer; one that breaks off is judged by nobody."""


def check_said(outputs: Iterable[Output], params: SamplingParams, script: str) -> None:
    """Raises ``ModelFault`` if a text among ``outputs`` is none that the constrained model could say."""
    if not is_constrained(params):
        return
    outputs = tuple(outputs)
    if any(isinstance(output, _FREE) for output in outputs):
        return
    for output in outputs:
        if not isinstance(output, Text) or output.phase == "commentary":
            continue
        if not _keeps("".join(output.parts), params):
            wanted = "that its strict JSON schema accepts" if params.text_strict else "that is a JSON object"
            raise _impossible(
                f"Script '{script}' answers with a text that no constrained model could say: the request's "
                f"text.format asks for one {wanted}. Say such a text, or use a format that is not strict."
            )


def check_made(value: Any, params: SamplingParams) -> None:
    """Raises ``ModelFault`` if the embedded model's own answer does not satisfy a strict schema."""
    if params.text_strict and not _accepts(params.text_schema, value, in_doubt=False):
        raise _impossible(
            "The embedded model finds no JSON that the strict schema of text.format accepts. Tell it by a script what "
            "to say."
        )


def is_constrained(params: SamplingParams) -> bool:
    """Whether the request leaves the model no other answer."""
    return params.json_object or params.text_strict


def _keeps(text: str, params: SamplingParams) -> bool:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    if params.text_strict:
        return _accepts(params.text_schema, value, in_doubt=True)
    return isinstance(value, dict)


def _accepts(schema: Any, value: Any, *, in_doubt: bool) -> bool:
    try:
        return Validator(schema).accepts(value, schema)
    except (TooComplex, RecursionError, ArithmeticError):
        return in_doubt


def _impossible(message: str) -> ModelFault:
    # Not server_error: clients retry that, and the answer would be the same the second time.
    return ModelFault(message, code="invalid_prompt", status=400)
