"""What may stand behind START: who speaks, and in which phase of an answer.

A message of the assistant may be labelled as commentary on the way or as the final answer (protocol.md section 6.3).
The label is part of the role's text, so that the model sees it in its history and says it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

PHASES = ("commentary", "final_answer")

HOSTED = "hosted"
ROLES = ("user", "assistant", "system", "developer", "tool", HOSTED, "tools", "item")
"""Message roles, and the template's words for outputs (of a client's tools, of the server's own), tool lists and opaque
items."""
OUTPUT_ROLES = ("tool", HOSTED)


def role_text(role: str, phase: str | None) -> str:
    """What stands behind START for a message. Only an assistant's has a phase."""
    return f"{role} {phase}" if phase and role == "assistant" else role


PHASE_OF_ROLE = {role_text("assistant", phase).encode(): phase for phase in PHASES}
"""The phase that a role's text says, by its bytes."""

RoleTable = dict[tuple[int, ...], str]
"""Roles by the token ids of their texts; a phase makes no other role."""


def role_table(tokenise: Callable[[list[int | str]], list[int]]) -> RoleTable:
    """The table of one tokenizer."""
    texts = {role: role for role in ROLES} | {role_text("assistant", phase): "assistant" for phase in PHASES}
    return {tuple(tokenise([text])): role for text, role in texts.items()}
