"""The text that the bundled tokenizer is trained on, made from the word lists and samples beside this file.

Byte-level BPE never looks beyond a word, so that word order teaches it nothing: sentences here are words drawn by
weight, with the capitals and the punctuation that words are seen with. Samples (code, JSON, shell sessions, Markdown)
are lines with places like ``%snake%`` that are filled in. Everything is drawn from one seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
SEED = 20
SENTENCES = 60_000
CAPITALS = 0.06
"""Share of words with a capital, beside names and the beginnings of sentences."""
SAMPLE_ROUNDS = 250
LATIN_LINES = 800
SCRIPT_LINES = 250
CHARACTER_ROUNDS = 1_500

VOWELS = "aeiou"
SHORT = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")
"""Verbs that double their last consonant."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SUFFIXES = (".py", ".ts", ".js", ".rs", ".go", ".md", ".json", ".txt", ".yaml", ".toml", ".html", ".sh")
DIRECTORIES = ("src", "tests", "docs", "lib", "app", "packages", "scripts", "examples", "internal", "usr/local", "home")
PLACE = re.compile(r"%([A-Za-z0-9]+)%")


class Words:
    """Words drawn by weight: those that stand first in their list come most often."""

    def __init__(self, random: Random, words: list[str], evenness: int) -> None:
        self._random = random
        self._words = words
        self._weights = list(accumulate(1 / (rank + evenness) for rank in range(len(words))))

    def draw(self) -> str:
        """One word."""
        return self._random.choices(self._words, cum_weights=self._weights)[0]


class Corpus:
    """All texts of the corpus, the same in every run."""

    def __init__(self) -> None:
        self._random = Random(SEED)
        self._function = self._list("function", evenness=8)
        self._nouns = self._list("nouns", evenness=150)
        self._verbs = self._list("verbs", evenness=120)
        self._adjectives = self._list("adjectives", evenness=120)
        self._derived = self._list("derived", evenness=200)
        self._names = self._list("names", evenness=100)
        self._code = self._list("code", evenness=80)
        self._places = self._fillers()

    def texts(self) -> Iterator[str]:
        """The corpus, text by text."""
        for _ in range(SENTENCES):
            yield self._sentence() + " "
        for path in sorted((HERE / "samples").glob("*.txt")):
            lines = path.read_text(encoding="utf-8")
            for _ in range(SAMPLE_ROUNDS):
                yield PLACE.sub(self._fill, lines)
        yield from self._foreign()

    def _list(self, name: str, evenness: int) -> Words:
        return Words(self._random, (HERE / "words" / f"{name}.txt").read_text(encoding="utf-8").split(), evenness)

    def _foreign(self) -> Iterator[str]:
        """Words of other languages. Each character by itself comes first and often: it must become one token before
        its bytes join with a neighbour's."""
        scripts = (HERE / "words" / "scripts.txt").read_text(encoding="utf-8")
        characters = (HERE / "words" / "characters.txt").read_text(encoding="utf-8")
        alone = "\n".join(sorted({*scripts, *scripts.upper(), *characters} - {"\n", " "}))
        for _ in range(CHARACTER_ROUNDS):
            yield alone
        for name, lines in (("latin", LATIN_LINES), ("scripts", SCRIPT_LINES)):
            words = self._list(name, evenness=400)
            for _ in range(lines):
                line = " ".join(words.draw() for _ in range(12))
                yield f"{line}. {line.title()}"

    def _sentence(self) -> str:
        words = [self._word() for _ in range(self._random.randint(5, 18))]
        for at in range(len(words) - 1):
            words[at] += self._random.choices(["", ",", ":", ";", " -", " —"], [88, 9, 1, 0.5, 0.5, 0.3])[0]
        text = " ".join(words)
        return text[0].upper() + text[1:] + self._random.choices([".", "?", "!", ":"], [90, 5, 3, 2])[0]

    def _word(self) -> str:
        word = self._lower_word()
        return upper_first(word) if self._random.random() < CAPITALS else word

    def _lower_word(self) -> str:
        kind = self._random.random()
        if kind < 0.42:
            return self._function.draw()
        if kind < 0.63:
            return self._noun()
        if kind < 0.78:
            return self._verb()
        if kind < 0.89:
            return self._adjective()
        return self._derived.draw() if kind < 0.96 else self._names.draw()

    def _noun(self) -> str:
        noun = self._nouns.draw()
        return plural(noun) if self._random.random() < 0.3 else noun

    def _verb(self) -> str:
        """A verb in one of its forms; irregular ones bring past and participle along, as in ``see:saw:seen``."""
        verb, *irregular = self._verbs.draw().split(":")
        form = self._random.random()
        if form < 0.4:
            return verb
        if form < 0.55:
            return plural(verb)
        if form < 0.75:
            return gerund(verb)
        return self._random.choice(irregular) if irregular else past(verb)

    def _adjective(self) -> str:
        adjective = self._adjectives.draw()
        has_adverb = adjective.endswith(("al", "ful", "ous", "ive", "ic", "ent", "ant", "ate", "ble", "ct"))
        return adverb(adjective) if has_adverb and self._random.random() < 0.3 else adjective

    def _identifier(self) -> list[str]:
        draws = (self._code.draw, self._code.draw, self._nouns.draw, self._verb)
        return [self._random.choice(draws)().lower() for _ in range(self._random.choice((1, 1, 2, 2, 3)))]

    def _fillers(self) -> dict[str, Callable[[], str]]:
        """What stands in for each place of a sample."""
        return {
            "word": self._word,
            "noun": self._nouns.draw,
            "nouns": lambda: plural(self._nouns.draw()),
            "adjective": self._adjectives.draw,
            "words": lambda: " ".join(self._word() for _ in range(self._random.randint(2, 5))),
            "Name": self._names.draw,
            "Mon": lambda: self._random.choice(MONTHS),
            "sentence": self._sentence,
            "snake": lambda: "_".join(self._identifier()),
            "kebab": lambda: "-".join(self._identifier()),
            "CONST": lambda: "_".join(self._identifier()).upper(),
            "camel": lambda: lower_first("".join(map(upper_first, self._identifier()))),
            "Camel": lambda: "".join(map(upper_first, self._identifier())),
            "small": lambda: str(self._random.randint(0, 99)),
            "int": lambda: str(self._random.randint(100, 9999)),
            "float": lambda: f"{self._random.random() * 100:.2f}",
            "hex": lambda: f"{self._random.getrandbits(96):024x}",
            "hex7": lambda: f"{self._random.getrandbits(28):07x}",
            "uuid": lambda: "-".join(f"{self._random.getrandbits(4 * size):0{size}x}" for size in (8, 4, 4, 4, 12)),
            "date": lambda: f"20{self._two(10, 30)}-{self._two(1, 12)}-{self._two(1, 28)}",
            "time": lambda: f"{self._two(0, 23)}:{self._two(0, 59)}:{self._two(0, 59)}",
            "file": self._file,
            "path": lambda: f"{self._random.choice(DIRECTORIES)}/{'_'.join(self._identifier())}/{self._file()}",
            "url": lambda: f"https://{self._nouns.draw()}.example.com/{'-'.join(self._identifier())}",
        }

    def _fill(self, place: re.Match[str]) -> str:
        name = place[1]
        if name in self._places:
            return self._places[name]()
        return upper_first(self._places[lower_first(name)]())

    def _two(self, low: int, high: int) -> str:
        return f"{self._random.randint(low, high):02}"

    def _file(self) -> str:
        return "_".join(self._identifier()) + self._random.choice(SUFFIXES)


def plural(word: str) -> str:
    """A noun's plural, or a verb's third person."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if ends_in_consonant_y(word) else f"{word}s"


def past(verb: str) -> str:
    """The past of a regular verb."""
    if verb.endswith("e"):
        return f"{verb}d"
    return f"{verb[:-1]}ied" if ends_in_consonant_y(verb) else f"{doubled(verb)}ed"


def gerund(verb: str) -> str:
    """A verb's form in -ing."""
    return f"{verb[:-1]}ing" if verb.endswith("e") and not verb.endswith("ee") else f"{doubled(verb)}ing"


def doubled(verb: str) -> str:
    """A verb as it stands before an ending: stop, stopp-."""
    return verb + verb[-1] if SHORT.fullmatch(verb) else verb


def adverb(adjective: str) -> str:
    """An adjective's adverb."""
    if adjective.endswith("le"):
        return f"{adjective[:-1]}y"
    if adjective.endswith("ic"):
        return f"{adjective}ally"
    return f"{adjective[:-1]}ily" if ends_in_consonant_y(adjective) else f"{adjective}ly"


def ends_in_consonant_y(word: str) -> bool:
    """Whether the y turns into an i before an ending."""
    return len(word) > 1 and word.endswith("y") and word[-2] not in VOWELS


def upper_first(text: str) -> str:
    """The text with a capital."""
    return text[:1].upper() + text[1:]


def lower_first(text: str) -> str:
    """The text without a capital."""
    return text[:1].lower() + text[1:]
