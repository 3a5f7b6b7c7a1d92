"""Who is asking: bearer keys and the tenants they stand for.

A tenant is the name under which responses are stored and turns are logged. Keys are kept only as digests and compared
in constant time; no message, name or ``repr`` made here holds one. Nothing here reads files: ``settings.py`` hands the
lines of the keys file over.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from respserver.config import Config, is_key
from respserver.errors import ConfigError, InvalidApiKey

DEFAULT_TENANT = "default"
"""Everybody's tenant while no keys are configured."""

_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")


class KeyRing:
    """The keys that a server accepts.

    ``tenants`` maps the SHA-256 digest of each key to its tenant; an empty mapping accepts any key and none.
    """

    def __init__(self, tenants: Mapping[bytes, str]) -> None:
        self._tenants = dict(tenants)

    @classmethod
    def from_config(cls, config: Config, file_lines: Iterable[str] = ()) -> KeyRing:
        """The key ring of a configuration: ``api_key``, and the lines of ``api_keys_file`` as they were read.

        A key that stands in both gets the file's tenant. Raises ``ConfigError`` naming the file and the line, and for
        a file without keys, which would otherwise open the server to everybody.
        """
        tenants = {_digest(key): _unnamed_tenant(key) for key in config.api_key}
        if config.api_keys_file is not None:
            tenants |= _read_lines(config.api_keys_file, file_lines)
        return cls(tenants)

    @property
    def is_open(self) -> bool:
        """Whether no keys are configured, so that everybody may enter."""
        return not self._tenants

    def replace(self, other: KeyRing) -> None:
        """Accept what ``other`` accepts from now on, and nothing else, in one step."""
        self._tenants = other._tenants

    def authenticate(self, authorization: str | None) -> str:
        """The tenant of a request, from the value of its ``Authorization`` header.

        Raises ``InvalidApiKey`` if the header holds no bearer key or an unknown one. While no keys are configured,
        any header will do, and the tenant is ``default``.
        """
        if self.is_open:
            return DEFAULT_TENANT
        key = bearer_key(authorization)
        if key is None:
            raise InvalidApiKey(given=False)
        tenant = self._find(_digest(key))
        if tenant is None:
            raise InvalidApiKey(given=True)
        return tenant

    def _find(self, digest: bytes) -> str | None:
        # Every entry is compared, in constant time each: the answer's time tells nothing of the keys.
        found = None
        for known, tenant in self._tenants.items():
            if hmac.compare_digest(known, digest):
                found = tenant
        return found


def bearer_key(authorization: str | None) -> str | None:
    """The key in an ``Authorization`` header's value, or None if it is missing, empty or of another scheme.

    The scheme may be written in any case, and spaces around it and the key do not count (RFC 9110 section 11).
    """
    scheme, _, key = (authorization or "").strip().partition(" ")
    key = key.strip()
    return key if scheme.lower() == "bearer" and key else None


def _read_lines(file: str, lines: Iterable[str]) -> dict[bytes, str]:
    tenants: dict[bytes, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        digest, tenant = _read_words(f"{file}:{number}", words)
        if tenants.setdefault(digest, tenant) != tenant:
            raise ConfigError(f"{file}:{number}", "this key stands on an earlier line with another tenant")
    if not tenants:
        raise ConfigError(file, "holds no keys; without the file, any key and none would be accepted")
    return tenants


def _read_words(place: str, words: list[str]) -> tuple[bytes, str]:
    key, *rest = words
    if len(rest) > 1:
        raise ConfigError(place, f"expected KEY or KEY TENANT, found {len(words)} words")
    if not is_key(key):
        raise ConfigError(place, "a key is visible ASCII characters only")
    if rest and not _TENANT.fullmatch(rest[0]):
        raise ConfigError(place, "a tenant's name is 1 to 64 ASCII letters, digits, dots, dashes or underscores")
    return _digest(key), rest[0] if rest else _unnamed_tenant(key)


def _unnamed_tenant(key: str) -> str:
    return f"key-{_digest(key).hex()[:12]}"


def _digest(key: str) -> bytes:
    # surrogatepass: a header may have been decoded in any way, and a strange key is unknown, not a crash.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
