"""What a classifier is and what it says. No classifier is here, and nothing that waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec

from respserver.errors import ContentPolicyViolation
from respserver.schema.items import InputItem
from respserver.state import StateError

Action = Literal["pass", "flag", "block"]
Category = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}$")]
"""A word, as in ``self-harm`` or ``violence/graphic``: it is shown to clients and stands in stored states."""

MAX_CATEGORIES = 32
"""Verdicts of a chain add up; more names than this tell nobody more."""
_WEIGHTS: dict[str, int] = {"pass": 0, "flag": 1, "block": 2}


class Verdict(msgspec.Struct, frozen=True):
    """What is thought of an input, and as what. A pass has no categories."""

    action: Action = "pass"
    categories: tuple[Category, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether the input must be refused."""
        return self.action == "block"

    def merged(self, other: Verdict) -> Verdict:
        """Both in one: the worse action, the categories of either, ours first."""
        if other.action == "pass" or other == self:
            return self
        if self.action == "pass":
            return other
        names = tuple(dict.fromkeys(self.categories + other.categories))
        action = max(self.action, other.action, key=_WEIGHTS.__getitem__)
        return Verdict(action, names[:MAX_CATEGORIES])

    def raise_if_blocked(self) -> None:
        """Raises ``ContentPolicyViolation`` with the categories for a block, else does nothing."""
        if self.blocks:
            raise ContentPolicyViolation(self.categories)

    def encode(self) -> str:
        """A short text for states, ledgers and metadata: empty for a pass, else ``flag violence self-harm``."""
        return "" if self.action == "pass" else " ".join((self.action, *self.categories))


PASS = Verdict()
"""Nothing to object to: what every chain begins with."""


class Classifier(Protocol):
    """Judges input.

    ``when``: ``before`` speaks before ``response.created``, so that a refusal is one plain error; ``beside`` runs
    while the input is rendered, and only sampling waits for it.
    """

    name: str
    """For logs."""
    reads: Literal["new", "context"]
    """Whether ``screen`` gets the new items only or the whole context, the new ones included."""
    when: Literal["before", "beside"]

    async def screen(self, items: Sequence[InputItem], verdict: Verdict) -> Verdict:
        """What it thinks of ``items``; ``verdict`` is what was thought of the chain so far and needn't be repeated.

        May be cancelled when another classifier has spoken, and runs for many turns at once. Raises ``ApiError`` if
        the turn must be refused because it cannot tell.
        """
        ...

    async def aclose(self) -> None:
        """Free what it holds; called once, at the end of the server."""
        ...


def decode_verdict(text: str) -> Verdict:
    """Read what ``Verdict.encode`` made. Raises ``StateError``."""
    if not text:
        return PASS
    action, *categories = text.split(" ")
    try:
        return msgspec.convert({"action": action, "categories": categories}, Verdict)
    except msgspec.ValidationError as error:
        raise StateError(f"not a verdict: {text!r}") from error
