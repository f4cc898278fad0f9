"""Every bug that can be planted in what the simulation runs."""

from __future__ import annotations

from sim import plantedcore, plantedlong, plantedstore
from sim.planting import BUGS, planted

__all__ = ["BUGS", "planted", "plantedcore", "plantedlong", "plantedstore"]
