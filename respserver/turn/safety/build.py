"""Makes the classifiers that the settings name. The one place that knows every kind."""

from __future__ import annotations

from typing import assert_never

from respserver.config import (
    ClassifierConfig,
    Config,
    HttpClassifierConfig,
    LatencyClassifierConfig,
    TermsClassifierConfig,
)
from respserver.errors import ConfigError
from respserver.turn.safety.base import Classifier
from respserver.turn.safety.http import HttpClassifier
from respserver.turn.safety.latency import LatencyClassifier
from respserver.turn.safety.screening import Screening
from respserver.turn.safety.terms import TermsClassifier, read_terms


def build_screening(config: Config) -> Screening:
    """The screening of a server; its terms files are read here.

    Raises ``ConfigError``: for a line of a terms file it names file and line, else the field.
    """
    return Screening(_classifier(entry, f"classifiers[{index}]") for index, entry in enumerate(config.classifiers))


def _classifier(entry: ClassifierConfig, place: str) -> Classifier:
    match entry:
        case TermsClassifierConfig():
            return _terms(entry, f"{place}.file")
        case HttpClassifierConfig():
            return HttpClassifier(entry)
        case LatencyClassifierConfig():
            return LatencyClassifier(entry)
        case _:  # pragma: no cover - the type checker sees that every kind stands above
            assert_never(entry)


def _terms(entry: TermsClassifierConfig, place: str) -> TermsClassifier:
    name = entry.name or "terms"
    try:
        with open(entry.file, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise ConfigError(place, f"cannot read {entry.file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(place, f"cannot read {entry.file}: it is not UTF-8 text") from error
    return TermsClassifier(name, read_terms(lines, entry.file, category=name), when=entry.when)
