"""What an engine is: token ids in, token ids out, with a prefix that is kept (design.md sections 3 and 6)."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import Any, Protocol

import msgspec

from respserver.tokens.logprobs import TokenLogprob


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How one sampling run is to go. Engines that cannot honour a field say so by raising ``ModelFault``."""

    model: str
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = None
    """Tokens that may still be sampled; the caller stops the run by itself as well."""
    tool_mode: str = "auto"
    """``none``, ``auto`` or ``required``, from ``tool_choice``."""
    tool_names: tuple[str, ...] = ()
    """Qualified names that ``tool_choice`` narrows the offer to; empty is all."""
    hosted_names: tuple[str, ...] = ()
    """Qualified names of the tools that the server runs itself. A search that is not among them can only be described,
    not called."""
    text_schema: Any = None  # Any: a JSON schema that the text must satisfy, or None
    text_strict: bool = False
    """Whether the schema constrains what may be said at all, as ``strict: true`` promises."""
    json_object: bool = False
    top_logprobs: int | None = None
    """None: no log probabilities are wanted. Else every batch has those of its ids, with so many of the most likely
    ids at each place. Asked only of engines that give them."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids that are due together. ``finished`` means that the model has ended its turn; no end token is among
    the ids."""

    ids: Ids[int]
    finished: bool = False
    logprobs: Ids[TokenLogprob] | None = None
    """One for each id, if the run was asked for them."""


class Sequence(Protocol):
    """One open run: a context that only grows, owned by one turn at a time."""

    async def extend(self, ids: Ids[int]) -> None:
        """Append context that did not come from sampling. Raises ``ModelFault``."""
        ...

    async def next(self, params: SamplingParams) -> Batch:
        """Sample on. The ids returned are part of the sequence at once; a call that is cancelled has added none, and
        the sequence can be used on (a response that is steered stops such a wait). Raises ``ModelFault``."""
        ...

    async def discard(self, count: int) -> None:
        """Forget the last ``count`` sampled ids, which the caller did not take (a limit cut them)."""
        ...

    async def fork(self) -> Sequence:
        """A second run with the same context so far."""
        ...

    async def aclose(self) -> None:
        """Free what the run holds. Safe to call twice and while cancelled."""
        ...


class Engine(Protocol):
    """A source of sequences."""

    name: str
    gives_logprobs: bool
    """Whether ``SamplingParams.top_logprobs`` is honoured; if not, requests that ask for it are refused."""

    async def open(self) -> Sequence:
        """Start an empty run."""
        ...

    async def aclose(self) -> None:
        """Free the engine."""
        ...
