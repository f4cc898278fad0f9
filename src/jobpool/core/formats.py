"""Formats: what a store may hold that older code cannot honour.

A store's schema may be newer than the code that uses it: what is added leaves older
code's statements as they were. Some features are different. A supervisor that does not
know codecs would hand a handler bytes that it cannot read; one that does not know
quotas would lease past them. Each such feature has a number here, its format, and each
release the highest one that it can honour.

The store has two numbers. `min_format` is the least format that may lease. A feature is
asked for when it is first used: that raises `wanted_format`. `min_format` follows once
no open run is older, and never goes down. Until then the feature cannot be used, and
one can still go back to the previous release.
"""

from __future__ import annotations

from collections.abc import Mapping

OLDEST = 1
"""What code from before formats can honour."""
FORMAT = 4
"""What this code can honour."""
CODECS = 2
"""Payloads, results and errors that have passed through the application's codec."""
QUOTAS = 3
"""Quotas: what is over a cap or a rate must not be leased."""
FLOWS = 4
"""Flows: members' ends lead to others, whose arguments their results may be."""
FEATURES: Mapping[int, str] = {CODECS: "codecs", QUOTAS: "quotas", FLOWS: "flows"}
"""Each feature that older code cannot honour, by its format."""
TOO_OLD = (
    f"this jobpool is too old for the store (it knows formats up to {FORMAT}): "
    "features of a newer release are in use there; upgrade jobpool here"
)


def feature_of(wanted: int) -> str:
    """Return what a format is for; a newer one is only known by its number."""
    return FEATURES.get(wanted, f"features of format {wanted}")
