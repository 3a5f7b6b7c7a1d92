"""Train the bundled tokenizer: ``python docs/tokenizer/train.py`` writes ``respserver/tokens/data/tokenizer.json``.

The same lists, samples and version of ``tokenizers`` give the same file, byte for byte; a test trains it again.
"""

from __future__ import annotations

from pathlib import Path

from corpus import Corpus
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from respserver.tokens.special import Special
from respserver.tokens.tokenizer import DATA_FILE

TRAINED_WITH = "0.23.3"
"""Version of ``tokenizers`` that made the file; another one may break ties in another way."""
VOCABULARY = 8192
"""Small enough to load at every start, large enough for four bytes of English a token."""


def train() -> str:
    """The content of ``tokenizer.json``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[mark.text for mark in Special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(Corpus().texts(), trainer)
    return tokenizer.to_str()


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "respserver" / "tokens" / DATA_FILE
    target.write_text(train(), encoding="utf-8")
    print(f"{target}: {target.stat().st_size} bytes")
