"""What all tests share: hypothesis, the order of files, what is stuck, and Ctrl-C."""

import gc
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from support.last_resort import LastResort
from support.seeds import PROFILE

GC_AFTER = 50_000
"""Tests leave cycles behind, but few; searching for them often costs a twentieth."""

LONGEST = (
    "simulation/test_simulation.py",
    "chaos/test_chaos.py",
    "integration/supervisor/test_shared_store.py",
    "integration/hostile/test_suspects.py",
    "integration/hostile/test_impostor.py",
    "integration/hostile/test_crash_points.py",
    "integration/supervisor/test_quotas.py",
    "integration/hostile/zoo/test_zoo.py",
    "integration/django/test_judges.py",
    "browser/test_pages.py",
    "integration/supervisor/test_vendor.py",
    "integration/supervisor/test_downstream.py",
    "property/test_store_model.py",
    "integration/cli/test_demo.py",
    "project/test_blocks.py",
    "integration/supervisor/test_death.py",
    "integration/supervisor/test_side_by_side.py",
    "integration/supervisor/test_store.py",
    "property/test_quota_model.py",
    "integration/supervisor/test_other_pools.py",
    "integration/supervisor/test_ends.py",
    "integration/supervisor/test_restored.py",
    "integration/executor/test_nested.py",
    "integration/supervisor/test_schedules.py",
    "integration/client/test_quotas.py",
    "integration/supervisor/test_point_in_time.py",
    "integration/hostile/test_mixed_deaths.py",
    "store/postgres/test_migrate.py",
    "integration/monitoring/test_metrics.py",
    "store/memory/test_model.py",
    "integration/django/test_running.py",
    "browser/test_in_use.py",
    "integration/supervisor/test_host_memory.py",
    "store/contract/test_repair.py",
    "store/postgres/test_capacity.py",
    "store/memory/test_quota_model.py",
    "integration/hostile/test_hostile_child.py",
    "integration/monitoring/test_sentry.py",
)
"""Few tests that take more than five seconds together: workers begin with them.

What computes stands beside what waits. Files of many tests come next, and none that
takes long is left for the end, where it would run alone; but for test_scaling.py, which
is skipped while the processors are busy.
"""

# No deadlines: on a busy machine they measure the neighbours. No phase that explains:
# on Python 3.11 it traces each line, and makes shrinking so slow that a model that
# fails dies by its time-out and never shows the example. The gate repeats the same
# examples, so that it judges the change and not its luck; everybody else explores.
COMMON = settings(
    deadline=None,
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.register_profile("dev", COMMON)
settings.register_profile("ci", COMMON, derandomize=True)
settings.load_profile(PROFILE)

# A shell without job control lets what it starts with `&` ignore Ctrl-C, and that is
# inherited: the processes that tests interrupt would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Have stacks shown where no time-out ends a test, if there are time-outs."""
    timeout_s = float(config.getoption("timeout") or config.getini("timeout") or 0)
    if timeout_s > 0:
        config.pluginmanager.register(LastResort(timeout_s))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Let no worker look for garbage among a million objects that all stay.

    The collector would walk over them again and again: nearly half of the time that it
    takes to find twelve thousand tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(GC_AFTER, 20, 20)


def pytest_runtest_teardown(nextitem):
    """Find what a process's last tests have left open, while it can still fail one."""
    if nextitem is None:
        gc.collect()


def pytest_collection_modifyitems(config, items):
    """Let workers begin with the longest files, then with those of most tests.

    With --dist loadfile a file is one worker's. pytest-xdist orders files by their
    number of tests alone: the longest, which have few, would all come last, side by
    side, with nothing left for the worker that ends first.
    """
    if not hasattr(config, "workerinput"):
        return
    tests = Path(__file__).parent
    first = {tests / name: turn for turn, name in enumerate(LONGEST)}
    counts = Counter(item.path for item in items)
    items.sort(
        key=lambda item: (
            first.get(item.path, len(LONGEST)),
            -counts[item.path],
            item.path,
        )
    )
