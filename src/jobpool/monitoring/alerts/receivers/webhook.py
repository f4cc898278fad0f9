"""A web server that gets each message as a signed POST."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path

from jobpool.core.config.readers import show_url
from jobpool.core.version import __version__
from jobpool.monitoring.alerts.receivers.http import request
from jobpool.monitoring.alerts.receivers.receiver import NotTaken

SIGNATURE = "Jobpool-Signature"
DELIVERY = "Jobpool-Delivery"


class Webhook:
    """Posts messages to a URL.

    Args:
        url: where.
        secret_file: holds the key; read each time, so that it can be changed. None:
            nothing is signed.
        allow_private: it may be an address that is not of the internet.
        now_s: the wall clock.
    """

    def __init__(
        self,
        url: str,
        *,
        secret_file: str | None,
        allow_private: bool,
        now_s: Callable[[], float],
    ) -> None:
        self._url = url
        self._secret_file = secret_file
        self._allow_private = allow_private
        self._now_s = now_s

    @property
    def place(self) -> str:
        """See `Receiver.place`."""
        return show_url(self._url)

    def send(self, name: str, body: bytes) -> str:
        """See `Receiver.send`."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"jobpool/{__version__}",
            DELIVERY: name,
        }
        if self._secret_file is not None:
            headers[SIGNATURE] = signature(self._secret(), body, int(self._now_s()))
        return request(
            "POST",
            self._url,
            body=body,
            headers=headers,
            allow_private=self._allow_private,
        )

    def _secret(self) -> bytes:
        """Return the key.

        Raises:
            NotTaken: it cannot be read: nothing is sent unsigned.
        """
        path = str(self._secret_file)
        try:
            secret = Path(path).read_bytes().strip()
        except OSError as exc:
            raise NotTaken(
                f"secret_file {path}: {exc.strerror}; nothing was sent unsigned"
            ) from exc
        if not secret:
            raise NotTaken(f"secret_file {path} is empty; nothing was sent unsigned")
        return secret


def signature(secret: bytes, body: bytes, at_s: int) -> str:
    """Return what the header says: the time, and HMAC-SHA256 over time, dot and body.

    The time is signed so that a message that somebody has recorded is known as old.
    """
    signed = hmac.new(secret, b"%d." % at_s + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={signed}"
