"""Where tests that draw at random begin: the gate always at the same place.

It judges a change, not the luck of what was drawn. A test that is run by hand explores,
and so do the scripts that try more: scripts/crash-points, scripts/chaos.
"""

import os
import random

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev")
"""Hypothesis's as well; tests/conftest.py says what each is."""
GATES = "20261126"


def seed(variable):
    """Return the seed that a variable of the environment names, the gate's, or any."""
    anyone = GATES if PROFILE == "ci" else str(random.SystemRandom().getrandbits(32))
    return os.environ.get(variable, anyone)
