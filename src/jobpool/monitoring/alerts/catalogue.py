"""The rules: what each is called, how urgent it is, and where the manual explains it.

Each has an option of `[alerts]` of the same name, and a section in ``alerts.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """Who should look."""

    PAGE = "page"
    """Somebody, at once."""
    TICKET = "ticket"
    """Somebody, on the next working day."""


class Rule(NamedTuple):
    """One rule."""

    name: str
    severity: Severity
    section: str
    """The heading in ``alerts.md``."""
    calm_s: float
    """All must be well for so long before an incident ends."""
    for_s: float = 0.0
    """It must be wrong for so long before an incident opens."""

    @property
    def runbook(self) -> str:
        """What to read."""
        anchor = self.section.lower().replace(" ", "-")
        return f"jobpool manual alerts#{anchor}"


STORE = Rule("store", Severity.PAGE, "Store", 0.0)
"""What cannot be noted in the store; see `away`."""
RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        STORE,
        Rule("no_supervisor", Severity.PAGE, "No supervisor", 60.0),
        Rule("oldest_age", Severity.PAGE, "Oldest age", 60.0),
        Rule("depth", Severity.TICKET, "Depth", 300.0),
        Rule("dead", Severity.TICKET, "Dead", 0.0),
        Rule("quarantined", Severity.TICKET, "Quarantined", 0.0),
        Rule("failure_rate", Severity.TICKET, "Failure rate", 300.0, 60.0),
        Rule("ratio", Severity.PAGE, "Ratio", 300.0),
        Rule("missed_ticks", Severity.TICKET, "Missed ticks", 60.0),
        Rule("stuck_flows", Severity.TICKET, "Stuck flows", 60.0, 60.0),
    )
}
"""By name."""
