"""Benches of the hot paths. Each file with a ``main`` answers one question: ``python -m bench.NAME``, from the
checkout; ``measure.py``, ``sockets.py``, ``peers.py`` and ``served.py`` are what they share."""
