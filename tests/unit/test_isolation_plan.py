"""Which measures are in force: by level, by option, and by what the machine lacks."""

import pytest

from jobpool.core.isolation import (
    ENVIRONMENT,
    MEASURES,
    NETWORK,
    NO_NEW_PRIVS,
    SIGNALS,
    SYSCALLS,
    WRITE,
    Feature,
    Lockdown,
    obstacles,
    plan,
)
from jobpool.core.limits import PoolLimits
from jobpool.core.settings import PoolSettings, SandboxLevel
from jobpool.errors import ConfigError

NOTHING = dict.fromkeys(Feature, "too old")
USER = {Feature.ADMIN: "not there"}


def pool(**options):
    return PoolSettings(
        name="cpu",
        size_min=1,
        size_max=1,
        limits=PoolLimits(timeout_s=1, memory_bytes=1),
        **options,
    )


def test_the_standard_level_is_what_costs_ordinary_handlers_nothing():
    """It takes no privilege, and restricts neither files nor the network."""
    lockdown, gaps = plan(pool(), USER)
    assert lockdown == Lockdown(no_new_privs=True, signals=True, syscalls=True)
    assert gaps == ()


def test_at_level_off_there_is_nothing():
    """And nothing is missed, whatever the machine lacks."""
    assert plan(pool(sandbox=SandboxLevel.OFF), NOTHING) == (Lockdown(), ())


def test_what_the_level_cannot_have_is_left_out_and_named():
    """Each measure by itself, with the reason."""
    lockdown, gaps = plan(pool(), {Feature.SCOPES: "too old"} | USER)
    assert lockdown == Lockdown(no_new_privs=True, syscalls=True)
    assert [(gap.measure, gap.why) for gap in gaps] == [(SIGNALS, "too old")]
    lockdown, gaps = plan(pool(), NOTHING)
    assert lockdown == Lockdown()
    assert [gap.measure for gap in gaps] == [NO_NEW_PRIVS, SIGNALS, SYSCALLS]


@pytest.mark.parametrize("level", SandboxLevel)
@pytest.mark.parametrize(
    ("options", "missing", "words"),
    [
        ({"write": ()}, Feature.FILE_RULES, r"write = \[paths\] is not possible here"),
        ({"network": False}, Feature.FILTERS, "network = false is not possible here"),
    ],
)
def test_what_was_asked_for_by_name_is_never_left_out(level, options, missing, words):
    """The start is refused, and says which pool and why."""
    asked = pool(sandbox=level, **options)
    with pytest.raises(ConfigError, match=f"pool cpu: {words}: too old"):
        plan(asked, {missing: "too old"})
    lockdown, gaps = plan(asked, USER)
    assert (lockdown.write, lockdown.network) == (asked.write, asked.network)
    assert lockdown.no_new_privs, "an ordinary user needs it for these"
    assert gaps == ()


def test_new_privileges_need_an_administrator():
    """Without no_new_privs only CAP_SYS_ADMIN may restrict itself."""
    lockdown, gaps = plan(pool(new_privileges=True), USER)
    assert lockdown == Lockdown()
    assert {gap.measure for gap in gaps} == {SIGNALS, SYSCALLS}
    assert all("CAP_SYS_ADMIN" in gap.why for gap in gaps)
    lockdown, gaps = plan(pool(new_privileges=True), {})
    assert lockdown == Lockdown(signals=True, syscalls=True)
    assert gaps == ()
    with pytest.raises(ConfigError, match="CAP_SYS_ADMIN"):
        plan(pool(new_privileges=True, network=False), USER)


def test_niceness_and_cores_are_passed_on():
    """They are no measures, and hold at any level."""
    asked = pool(sandbox=SandboxLevel.OFF, nice=5, cpus=(0, 2))
    assert plan(asked, NOTHING)[0] == Lockdown(nice=5, cpus=(0, 2))


def test_an_environment_of_its_own_needs_nothing():
    """It is scrubbed before the zygote starts, whatever the kernel has."""
    asked = pool(sandbox=SandboxLevel.OFF, env=("PATH",))
    assert plan(asked, NOTHING) == (Lockdown(), ())
    assert obstacles(ENVIRONMENT, NOTHING) == ""


def test_each_measure_says_what_it_stops_and_breaks():
    """One table, and all of it is used."""
    assert len({one.name for one in MEASURES}) == len(MEASURES) == 6
    assert all(one.stops and one.may_break for one in MEASURES)
    assert obstacles(WRITE, {Feature.FILE_RULES: "no"}) == "no"
    assert obstacles(NETWORK, USER) == ""
