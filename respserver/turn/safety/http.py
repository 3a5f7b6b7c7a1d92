"""A classifier that is asked over HTTP; the contract stands in docs/safety.md.

Nothing but the configured URL is ever called. No answer within the time limit, another status than 200, or an answer
that breaks the contract is no answer: the settings say whether the input is then refused or passes.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
import trio

from respserver.config import HttpClassifierConfig
from respserver.errors import ConnectionLost, RespserverError, ScreeningFailed
from respserver.http11 import AnswerTooLarge, Links
from respserver.logger import get_logger
from respserver.schema.items import InputItem
from respserver.turn.safety.base import MAX_CATEGORIES, PASS, Action, Category, Verdict

CONTRACT_VERSION = 1
ANSWER_BYTES = 64 << 10
"""A verdict is a few words; more is not read."""

log = get_logger("respserver.turn")


class Question(msgspec.Struct, kw_only=True):
    """What is posted. ``items`` are JSON just as clients sent it."""

    version: int = CONTRACT_VERSION
    classifier: str
    reads: Literal["new", "context"]
    items: list[msgspec.Raw]
    verdict: Verdict


class Answer(msgspec.Struct):
    """What comes back. Fields that it has beside these are not looked at."""

    action: Action
    categories: Annotated[tuple[Category, ...], msgspec.Meta(max_length=MAX_CATEGORIES)] = ()


class NoAnswer(RespserverError):
    """What came back is not an answer."""


_question = msgspec.json.Encoder()
_answer = msgspec.json.Decoder(Answer)


class HttpClassifier:
    """Asks ``config.url``. ``ssl_context`` replaces the default one for ``https``."""

    def __init__(self, config: HttpClassifierConfig, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.name = config.name or "http"
        self.reads: Literal["new", "context"] = config.reads
        self.when: Literal["before", "beside"] = config.when
        self._config = config
        headers = {"authorization": f"Bearer {config.api_key}"} if config.api_key else {}
        self._links = Links(urlsplit(config.url), headers, ssl_context)

    async def screen(self, items: Sequence[InputItem], verdict: Verdict) -> Verdict:
        """The service's answer. Raises ``ScreeningFailed`` without one, unless the settings let the input pass then."""
        raw = [msgspec.Raw(item.raw) for item in items]
        question = Question(classifier=self.name, reads=self.reads, items=raw, verdict=verdict)
        try:
            with trio.fail_after(self._config.seconds):
                return await self._ask(_question.encode(question))
        except trio.TooSlowError as error:
            return self._unanswered(f"no answer within {self._config.seconds:g} seconds", error)
        except (ConnectionLost, AnswerTooLarge, NoAnswer) as error:
            return self._unanswered(str(error), error)

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._links.aclose()

    async def _ask(self, question: bytes) -> Verdict:
        """Ask, and once more if the connection is lost: a kept one may be closed just when it is used again."""
        try:
            return await self._exchange(question)
        except ConnectionLost:
            return await self._exchange(question)

    async def _exchange(self, question: bytes) -> Verdict:
        async with self._links.post(question) as (head, link):
            body = await link.read(ANSWER_BYTES)
        if head.status_code != 200:
            raise NoAnswer(f"status {head.status_code}")
        try:
            answer = _answer.decode(body)
        except msgspec.DecodeError as error:
            raise NoAnswer(f"the answer breaks the contract: {error}") from error
        return PASS if answer.action == "pass" else Verdict(answer.action, answer.categories)

    def _unanswered(self, problem: str, error: Exception) -> Verdict:
        log.warning("screening_failed", classifier=self.name, failure=self._config.failure, problem=problem)
        if self._config.failure == "closed":
            raise ScreeningFailed from error
        return PASS
