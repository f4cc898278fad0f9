"""What is said of an entry of the audit trail. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobpool.core.event_lines import iso_time
from jobpool.core.units import show_duration, show_size
from jobpool.store.records.operating import AuditRow


def target_words(target: Mapping[str, Any]) -> str:
    """Return a target as words: kind shop.pay  states dead  ids 1-500."""
    parts = []
    for name, value in target.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name.endswith("_ms") and is_number:
            parts.append(f"{name.removesuffix('_ms')} {iso_time(value)}")
        elif name.endswith("_s") and is_number:
            parts.append(f"{name.removesuffix('_s')} {show_duration(value)}")
        elif name.endswith("_bytes") and is_number:
            parts.append(f"{name.removesuffix('_bytes')} {show_size(value)}")
        elif value is True:
            parts.append(name)
        elif isinstance(value, list):
            parts.append(f"{name} {', '.join(map(str, value))}")
        else:
            parts.append(f"{name} {value}")
    return "  ".join(parts)


def changes_words(row: AuditRow) -> str:
    """Return the paths of the arguments that were changed."""
    return f"changed {row.changed}" if row.changed else ""
