"""Every bug that can be planted in what the simulation runs."""

from __future__ import annotations

from simulation import (
    plantedcore,
    plantedflows,
    plantedlong,
    plantedmemory,
    plantedquotas,
    plantedschedules,
    plantedshares,
    plantedstore,
)
from simulation.planting import BUGS, planted

__all__ = [
    "BUGS",
    "planted",
    "plantedcore",
    "plantedflows",
    "plantedlong",
    "plantedmemory",
    "plantedquotas",
    "plantedschedules",
    "plantedshares",
    "plantedstore",
]
