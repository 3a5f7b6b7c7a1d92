"""Texts for benches: what a coding agent's tools print, never twice the same, so that no cache of whole texts helps.

A project's words come again and again, and so do they here; some thousand joined names among them, and hashes, keep a
memory of words from knowing all of a text."""

from __future__ import annotations

import random

_LANGUAGE = (
    "def return import class self async await with for in if not None True value request response event stream "
    "connection buffer token state error config server client message test assert path file line name index length "
    "the a of to and is that this it was on as be by are from or at an which when where expected found failed passed "
    "warning while reading writing could been has more than only into same first last new open closed"
)
WORDS = _LANGUAGE.split()
JOINED_SHARE = 0.15
HASH_SHARE = 0.02


def tool_output(size: int, seed: int) -> str:
    """About so many bytes of ASCII in lines of a file search, never more; another seed gives another text."""
    dice = random.Random(seed)
    lines: list[str] = []
    room = size
    while room > 0:
        words = " ".join(_word(dice) for _ in range(dice.randint(4, 12)))
        line = f"src/module_{dice.randint(0, 99)}.py:{dice.randint(1, 2000)}:    {words}\n"
        lines.append(line[:room])
        room -= len(line)
    return "".join(lines)


def _word(dice: random.Random) -> str:
    word = dice.choice(WORDS)
    kind = dice.random()
    if kind < JOINED_SHARE:
        return word + dice.choice(WORDS).title()
    if kind > 1 - HASH_SHARE:
        return f"{dice.getrandbits(28):07x}"
    return word
