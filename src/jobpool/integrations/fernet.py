"""FernetCodec: what is stored is encrypted, with keys that can be rotated.

It needs the package cryptography: ``pip install "jobpool[codec]"``.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from jobpool.errors import ConfigError

KEYS_VARIABLE = "JOBPOOL_FERNET_KEYS"
_EXAMPLE = (
    "python -c 'from cryptography.fernet import Fernet; "
    "print(Fernet.generate_key().decode())'"
)


class FernetCodec:
    """A `jobpool.Codec` that encrypts with Fernet: AES-128-CBC and HMAC-SHA256.

    The first key encrypts, and all of them decrypt. To rotate, put a new key first; an
    old one may go once no job is left that was stored with it.

    Args:
        keys: as ``Fernet.generate_key()`` makes them, newest first.

    Raises:
        ConfigError: there is no key, one is not valid, or cryptography is missing. No
            message shows a key.
    """

    name = "fernet"

    def __init__(self, keys: Iterable[str | bytes]) -> None:
        try:
            from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - optional
        except ImportError:
            raise ConfigError(
                "FernetCodec needs the package cryptography, which is not installed: "
                'pip install "jobpool[codec]"'
            ) from None
        given = [keys] if isinstance(keys, (str, bytes)) else list(keys)
        if not given:
            raise ConfigError(
                f"FernetCodec: there is no key; make one with: {_EXAMPLE}"
            )
        fernets = []
        wrong = 0
        for place, key in enumerate(given, 1):
            try:
                fernets.append(Fernet(key))
            except (ValueError, TypeError):
                wrong = wrong or place
        if wrong:  # raised out here: a chained cause could show a key
            raise ConfigError(
                f"FernetCodec: key {wrong} of {len(given)} is not valid; expected 32 "
                f"bytes as URL-safe base64, as made by: {_EXAMPLE}"
            )
        self._fernet = MultiFernet(fernets)
        self._count = len(fernets)
        known = sorted(key.encode() if isinstance(key, str) else key for key in given)
        self.version = blake2b(b" ".join(known), digest_size=8).hexdigest()
        """Tells supervisors with other keys apart; says nothing of the keys."""

    @classmethod
    def from_environment(cls, variable: str = KEYS_VARIABLE) -> FernetCodec:
        """Take the keys from an environment variable, separated by blanks.

        Raises:
            ConfigError: it is not set, or holds no valid keys.
        """
        text = os.environ.get(variable, "")
        if not text.split():
            raise ConfigError(
                f"FernetCodec: the environment variable {variable} is not set; "
                "expected keys separated by blanks, newest first. Make one with: "
                f"{_EXAMPLE}"
            )
        return cls(text.split())

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> FernetCodec:
        """Take the keys from a file, one a line; lines that begin with # are remarks.

        Raises:
            ConfigError: it cannot be read, or holds no valid keys.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
            raise ConfigError(
                f"FernetCodec: the keys cannot be read from {Path(path).absolute()}: "
                f"{why}; expected a file of keys, one a line. Make one with: {_EXAMPLE}"
            ) from None
        stripped = (line.strip() for line in lines)
        return cls([line for line in stripped if line and not line.startswith("#")])

    def __repr__(self) -> str:
        return f"<FernetCodec with {self._count} keys>"

    def encode(self, data: bytes, /) -> bytes:
        """Return *data* encrypted with the first key."""
        return urlsafe_b64decode(self._fernet.encrypt(data))

    def decode(self, data: bytes, /) -> bytes:
        """Return what `encode` was given.

        Raises:
            cryptography.fernet.InvalidToken: no key fits, or *data* was changed.
        """
        return self._fernet.decrypt(urlsafe_b64encode(data))
