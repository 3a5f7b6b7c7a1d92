"""Safety: classifiers that screen what a client sends, a station of the turn (design.md sections 2 and 5)."""

from respserver.turn.safety.base import PASS, Classifier, Verdict, decode_verdict
from respserver.turn.safety.build import build_screening
from respserver.turn.safety.screening import Screening, WholeContext

__all__ = ["PASS", "Classifier", "Screening", "Verdict", "WholeContext", "build_screening", "decode_verdict"]
