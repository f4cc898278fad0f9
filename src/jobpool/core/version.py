"""Which jobpool this is; the package's metadata take it from here."""

from __future__ import annotations

__version__ = "0.1.0"
