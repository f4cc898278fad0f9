"""Where each kind's limit comes from: file, decorator, pool, or the pool's maximum."""

import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.effective_limits import kind_limits
from jobpool.core.config.load import Machine, configure, read_sources
from jobpool.core.rules.limits import Limits
from jobpool.core.rules.policy import Policy
from jobpool.errors import ConfigError
from support.configuring import build, toml

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


def test_the_nearest_limit_wins_and_the_maximum_caps_it():
    """File over decorator over pool; a limit cut by the maximum names its origin."""
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


def test_only_kinds_that_run_here_are_listed():
    """Kinds of pools that another supervisor runs, and our own hooks, are not."""
    kinds = {kind for kind, _ in limits()}
    assert kinds == {"shop.plain", "shop.own", "shop.capped"}
    assert ("shop.plain", "soft_timeout") not in limits()


@pytest.mark.parametrize(
    ("low", "high", "is_wrong"),
    [
        (("timeout", "1m"), ("timeout_max", "1m"), False),
        (("timeout", "61s"), ("timeout_max", "1m"), True),
        (("memory", "1GiB"), ("memory_max", "1GiB"), False),
        (("memory", "1025MiB"), ("memory_max", "1GiB"), True),
        (("soft_timeout", "1m"), ("timeout", "1m"), True),
        (("soft_timeout", "59s"), ("timeout", "1m"), False),
        (("memory_soft", "1GiB"), ("memory", "1GiB"), True),
        (("memory_soft", "1023MiB"), ("memory", "1GiB"), False),
        (("memory_soft", "0.9"), ("memory", "1GiB"), False),
    ],
)
def test_a_soft_limit_is_below_the_hard_one_and_a_limit_up_to_its_maximum(
    low, high, is_wrong
):
    """A soft limit must be below the hard one; a limit may equal its maximum."""
    text = "\n".join(["[pools.cpu]", *(f'{name} = "{v}"' for name, v in (low, high))])
    if is_wrong:
        with pytest.raises(ConfigError, match=f"pool cpu: {low[0]} .* is not below"):
            build(files=toml(text))
    else:
        build(files=toml(text))
