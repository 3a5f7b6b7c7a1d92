"""Which places of a text quote what a search has found.

The model reads its sources with numbers, ``[1]``, ``[2]``, which go on through the whole chain; where it writes such a
mark itself, it quotes that source. A number that no source has is text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from respserver.schema.items import UrlCitation

_MARK = re.compile(r"\[([1-9][0-9]{0,5})\]")


def cite(text: str, sources: Sequence[tuple[str, str]]) -> list[UrlCitation]:
    """The citations of a text, in order. ``sources`` are addresses and titles, number 1 first."""
    if not sources:
        return []
    found = []
    for mark in _MARK.finditer(text):
        number = int(mark[1])
        if number <= len(sources):
            url, title = sources[number - 1]
            found.append(UrlCitation(url=url, title=title, start_index=mark.start(), end_index=mark.end()))
    return found
