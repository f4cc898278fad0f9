"""The application of the zoo's supervisors: all beasts, and the canaries."""

import time

import breeding
import dying
import eating
import hanging
import lying
import meddling
import raising
import reaching
from beasts import BEASTS, jobs

__all__ = ["BEASTS", "HOUSES", "jobs"]
HOUSES = (breeding, dying, eating, hanging, lying, meddling, raising, reaching)


@jobs.job("cpu", kind="zoo.canary", max_attempts=1)
def canary():
    time.sleep(0.002)


@jobs.job("io", kind="zoo.canary.io", max_attempts=1)
def canary_of_another_pool():
    time.sleep(0.002)
