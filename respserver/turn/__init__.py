"""The stations of a turn."""
