"""Benches of the hot paths. Each file with a ``main`` that takes ``--rounds`` answers one question: ``python -m
bench.NAME``, from the checkout; the other files are what they share."""
