"""Tools that the server runs by itself in the middle of a turn."""
