"""Engines: the embedded model ``sim``, later clients of real ones."""
