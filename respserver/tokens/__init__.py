"""Pure text work: buffer, tokenizer, rendering, parsing."""
