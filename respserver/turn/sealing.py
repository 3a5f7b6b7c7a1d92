"""Sealing: what a client keeps for us and may neither read nor change (protocol.md section 6.3).

A reasoning item's ``encrypted_content`` holds what the model thought, a search item's what it said and read, a
compaction item's the items that it stands for.
Both are encrypted and authenticated, bound to the tenant and to the kind of item: what was made for another tenant, by
another server, or with one character changed does not open. Each text has a key of its own, drawn from the server's key
and a random salt, so that no number of texts wears that key out.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from respserver.protocol.chain import name_outputs
from respserver.schema.input import read_input
from respserver.schema.items import CompactionItem, InputItem, ReasoningItem, SealedSearch, SearchItem

Kind = Literal["reasoning", "compaction", "search"]

_FORM = b"\x01"
"""The first byte of what is sealed: another way of doing it takes another one."""
_SALT_BYTES = 16
_KEY_BYTES = 32
_NONCE = bytes(12)
"""Always the same: no key is used twice."""
_person = b"respserver.seal"
_thoughts = msgspec.msgpack.Decoder(list[str])
_search = msgspec.msgpack.Decoder(SealedSearch)
_pack = msgspec.msgpack.Encoder().encode


class SealBroken(ValueError):
    """A sealed text that this server did not make for this tenant and this kind of item, or that was changed."""


class Sealer:
    """Seals and opens with one key. Without a ``key`` it takes a random one, which dies with the process."""

    def __init__(self, key: str | None = None) -> None:
        secret = secrets.token_bytes(_KEY_BYTES) if key is None else key.encode()
        self._key = hashlib.blake2b(secret, digest_size=_KEY_BYTES, person=_person).digest()

    def seal(self, kind: Kind, tenant: str, content: bytes) -> str:
        """``content`` as a text that only ``open`` can read, for the same kind and tenant."""
        salt = secrets.token_bytes(_SALT_BYTES)
        sealed: bytes = self._cipher(salt).encrypt(_NONCE, content, _pack((kind, tenant)))
        return _to_text(_FORM + salt + sealed)

    def open(self, kind: Kind, tenant: str, text: str) -> bytes:
        """What was sealed. Raises ``SealBroken``."""
        from cryptography.exceptions import InvalidTag

        data = _from_text(text)
        start = len(_FORM) + _SALT_BYTES
        if not data.startswith(_FORM) or len(data) < start:
            raise SealBroken(kind)
        try:
            content: bytes = self._cipher(data[len(_FORM) : start]).decrypt(_NONCE, data[start:], _pack((kind, tenant)))
        except InvalidTag:
            raise SealBroken(kind) from None
        return content

    def seal_thoughts(self, tenant: str, thoughts: Sequence[str]) -> str:
        """``encrypted_content`` of a reasoning item with these parts."""
        return self.seal("reasoning", tenant, _pack(list(thoughts)))

    def seal_items(self, tenant: str, items: Sequence[bytes]) -> str:
        """``encrypted_content`` of a compaction item that stands for these items, each a JSON text."""
        return self.seal("compaction", tenant, b"[" + b",".join(items) + b"]")

    def seal_search(self, tenant: str, search: SealedSearch) -> str:
        """``encrypted_content`` of a search item."""
        return self.seal("search", tenant, _pack(search))

    def open_item(self, item: InputItem, tenant: str) -> InputItem:
        """The item with what is sealed inside in reach; one that has nothing sealed as it is. Raises ``SealBroken``."""
        if isinstance(item, ReasoningItem) and item.encrypted_content is not None:
            thoughts = _thoughts.decode(self.open("reasoning", tenant, item.encrypted_content))
            return msgspec.structs.replace(item, sealed=thoughts)
        if isinstance(item, SearchItem):
            found = _search.decode(self.open("search", tenant, item.encrypted_content))
            return msgspec.structs.replace(item, sealed=found)
        if isinstance(item, CompactionItem) and item.encrypted_content is not None:
            content = self.open("compaction", tenant, item.encrypted_content)
            items = [self.open_item(inner, tenant) for inner in read_input(content)]
            return msgspec.structs.replace(item, items=name_outputs(items))
        return item

    def _cipher(self, salt: bytes) -> Any:  # Any: a class of a package that is not imported before it is needed
        key = hashlib.blake2b(salt, key=self._key, digest_size=_KEY_BYTES, person=_person).digest()
        return _cipher_class()(key)


@functools.cache
def _cipher_class() -> Any:
    """Imported late: it takes longer than the rest of a start, and most turns have nothing to seal."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _from_text(text: str) -> bytes:
    try:
        data = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise SealBroken("not base64") from None
    # The last character may have bits that say nothing: a change of these must not go unseen either.
    if _to_text(data) != text:
        raise SealBroken("not as it was written")
    return data
