"""``sim``, the embedded model: no weights, a script or a rehearsal, the tokens of the bundled tokenizer."""

from respserver.engines.sim.engine import Sim, SimSequence
from respserver.engines.sim.script import (
    Conversation,
    Output,
    Script,
    Step,
    call,
    conversation,
    custom,
    delay,
    fault,
    reasoning,
    refusal,
    step,
    text,
)
from respserver.engines.sim.script_file import load_script, parse_script

__all__ = [
    "Conversation",
    "Output",
    "Script",
    "Sim",
    "SimSequence",
    "Step",
    "call",
    "conversation",
    "custom",
    "delay",
    "fault",
    "load_script",
    "parse_script",
    "reasoning",
    "refusal",
    "step",
    "text",
]
