"""What every event of a response has.

``sequence_number`` and ``stream_id`` are filled in by the lane on the way out and nowhere else.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Event(msgspec.Struct, kw_only=True, tag_field="type"):
    """What every event of a response has."""

    sequence_number: int = 0
    stream_id: str | UnsetType = UNSET
