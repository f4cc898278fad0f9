"""Where each kind's limit comes from: file, decorator, pool, or the pool's maximum."""

from jobpool.core.config import Machine, configure, read_sources
from jobpool.core.handler import AppReport, HandlerSpec
from jobpool.core.kindlimits import kind_limits
from jobpool.core.limits import Limits
from jobpool.core.policy import Policy

FILE = """
[pools.cpu]
timeout = "1m"
timeout_max = "2m"
[kinds."shop.capped"]
timeout = "1h"
max_crashes = 1
"""
REPORT = AppReport(
    handlers=(
        HandlerSpec(kind="shop.plain", pool="cpu"),
        HandlerSpec(
            kind="shop.own",
            pool="cpu",
            limits=Limits(timeout_s=90.0, heartbeat_timeout_s=5.0),
            policy=Policy(max_attempts=2),
        ),
        HandlerSpec(kind="shop.capped", pool="cpu", limits=Limits(timeout_s=5.0)),
        HandlerSpec(kind="shop.elsewhere", pool="gpu"),
        HandlerSpec(kind="jobpool:on_dead", pool="cpu"),
    )
)


def limits():
    sources = read_sources(
        {"memory": "cpu=64MiB"},
        env={},
        directory="/srv",
        read_file={"/srv/jobpool.toml": FILE}.get,
    )
    machine = Machine(cores=1, memory_bytes=2**40)
    configuration = configure(sources, machine=machine, has_jobs_file=True)
    return {
        (limit.kind, limit.name): (limit.shown, limit.origin)
        for limit in kind_limits(configuration, REPORT)
    }


def test_the_nearest_word_wins_and_the_maximum_caps():
    """File over decorator over pool; what the maximum cut says who asked."""
    found = limits()
    file = "jobpool.toml [pools.cpu]"
    assert found["shop.plain", "timeout"] == ("1m00s", f"{file} timeout")
    assert found["shop.plain", "memory"] == ("64MiB", "flag --memory")
    assert found["shop.own", "timeout"] == ("1m30s", "decorator")
    assert found["shop.own", "heartbeat_timeout"] == ("5s", "decorator")
    assert found["shop.own", "max_attempts"] == ("2", "decorator, or its default")
    shown, origin = found["shop.capped", "timeout"]
    assert shown == "2m00s"
    assert origin.startswith(f"{file} timeout_max (")
    assert origin.endswith('[kinds."shop.capped"] timeout asked for 1h00m)')
    assert found["shop.capped", "max_crashes"] == (
        "1",
        'jobpool.toml [kinds."shop.capped"] max_crashes',
    )


def test_only_what_runs_here_is_listed():
    """Kinds of pools that another supervisor runs, and our own hooks, are not."""
    kinds = {kind for kind, _ in limits()}
    assert kinds == {"shop.plain", "shop.own", "shop.capped"}
    assert ("shop.plain", "soft_timeout") not in limits()
