"""The bundled vocabulary: it can be made again, and it is worth its size."""

from __future__ import annotations

import importlib.resources
import runpy
from pathlib import Path

import pytest
import tokenizers

from respserver.tokens.tokenizer import DATA_FILE, Tokenizer

DATA = importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes()
TRAINING = Path(__file__).parent.parent / "docs" / "tokenizer"
PROSE = """When I was a child my grandmother kept a small shop at the corner of our street. She sold bread, newspapers
and sweets, and on Saturdays she let me stand behind the counter and count the coins. I remember the smell of coffee in
the morning and the bell above the door that rang whenever somebody came in. She knew everyone by name, and everyone
knew her. Many years later I went back to see what had become of it. The shop had closed long ago, and a young couple
had turned the room into a place where they repair bicycles."""
CODE = """async def fetch(self, path: str, *, timeout: float = 5.0) -> bytes:
    for attempt in range(3):
        try:
            return await self._client.get(path, timeout=timeout)
        except ConnectionError as error:
            logger.warning("attempt %d failed: %s", attempt, error)
    raise RuntimeError(path)
"""
CALL = '{"command":["bash","-lc","grep -rn main src | head"],"workdir":"/home/user/project","timeout_ms":10000}'


@pytest.mark.parametrize(("text", "least"), [(PROSE, 3.8), (CODE, 2.8), (CALL, 2.8)], ids=["prose", "code", "call"])
def test_a_token_holds_several_bytes(text: str, least: float) -> None:
    assert len(text.encode()) / len(Tokenizer(DATA).encode(text)) >= least


@pytest.mark.parametrize(
    "characters", ["жизнь", "λόγος", "שלום", "नमस", "ひらがな", "カタ", "的一是不", "한국어", "🎉🚀"]
)
def test_common_characters_of_other_scripts_take_few_tokens(characters: str) -> None:
    assert len(Tokenizer(DATA).encode(characters)) <= len(characters)


@pytest.mark.slow
def test_training_again_gives_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TRAINING))
    training = runpy.run_path(str(TRAINING / "train.py"))
    if tokenizers.__version__ != training["TRAINED_WITH"]:
        pytest.skip(
            f"the file was trained with tokenizers {training['TRAINED_WITH']}, which breaks ties in its own way"
        )
    assert training["train"]().encode() == DATA
