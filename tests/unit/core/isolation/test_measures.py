"""Which measures are in force: by level, by option, and by what the machine lacks."""

import pytest

from jobpool.core.config.settings import PoolSettings, SandboxLevel
from jobpool.core.isolation.measures import (
    ENVIRONMENT,
    MEASURES,
    NETWORK,
    NO_NEW_PRIVS,
    OWN_ENVIRONMENT,
    OWN_USER,
    SIGNALS,
    SYSCALLS,
    VARIABLES,
    WRITE,
    Enclosure,
    Feature,
    Lockdown,
    obstacles,
    plan,
    variables,
)
from jobpool.core.rules.limits import PoolLimits
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


def test_the_standard_level_costs_ordinary_handlers_nothing():
    """It needs no privilege, and restricts neither files nor the network."""
    lockdown, gaps = plan(pool(), USER)
    assert lockdown == Lockdown(no_new_privs=True, signals=True, syscalls=True)
    assert gaps == ()


def test_at_level_off_there_are_no_measures():
    """And no measure is reported missing, whatever the machine lacks."""
    assert plan(pool(sandbox=SandboxLevel.OFF), NOTHING) == (Lockdown(), ())


def test_measures_that_are_not_available_are_left_out_and_named():
    """Each measure by itself, with the reason."""
    lockdown, gaps = plan(pool(), {Feature.SCOPES: "too old"} | USER)
    assert lockdown == Lockdown(no_new_privs=True, syscalls=True)
    assert [(gap.measure, gap.why) for gap in gaps] == [(SIGNALS, "too old")]
    lockdown, gaps = plan(pool(), NOTHING)
    assert lockdown == Lockdown()
    assert [gap.measure for gap in gaps] == [NO_NEW_PRIVS, SIGNALS, SYSCALLS]


@pytest.mark.parametrize("level", [SandboxLevel.OFF, SandboxLevel.STANDARD])
@pytest.mark.parametrize(
    ("options", "missing", "words"),
    [
        ({"write": ()}, Feature.FILE_RULES, r"write = \[paths\] is not possible here"),
        ({"network": False}, Feature.FILTERS, "network = false is not possible here"),
    ],
)
def test_a_measure_that_was_named_is_never_left_out(level, options, missing, words):
    """The start is refused; the error says which pool and why."""
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
    """They are not measures, and apply at any level."""
    asked = pool(sandbox=SandboxLevel.OFF, nice=5, cpus=(0, 2))
    assert plan(asked, NOTHING)[0] == Lockdown(nice=5, cpus=(0, 2))


def test_a_scrubbed_environment_needs_nothing():
    """It is scrubbed before the zygote starts, whatever the kernel has."""
    asked = pool(sandbox=SandboxLevel.OFF, env=("PATH",))
    assert plan(asked, NOTHING) == (Lockdown(), ())
    assert obstacles(ENVIRONMENT, NOTHING) == ""


def test_each_measure_says_what_it_stops_and_breaks():
    """One table, and all of it is used."""
    assert len({one.name for one in MEASURES}) == len(MEASURES) == 12
    assert all(one.stops and one.may_break for one in MEASURES)
    assert obstacles(WRITE, {Feature.FILE_RULES: "no"}) == "no"
    assert obstacles(NETWORK, USER) == ""


STRICT = {"sandbox": SandboxLevel.STRICT}
STRICT_BY = {"standard", "strict"}
ROOTS_ALONE = USER | {Feature.USERS: "only root can"}


def test_the_strict_level_has_every_measure():
    """All of standard, nowhere to write, and an enclosure by the available right."""
    all_of_it = Lockdown(
        no_new_privs=True,
        signals=True,
        syscalls=True,
        write=(),
        enclosure=Enclosure.OWN_USER,
    )
    assert plan(pool(**STRICT), {}) == (all_of_it, ())
    lockdown, gaps = plan(pool(**STRICT), ROOTS_ALONE)
    assert lockdown.enclosure is Enclosure.USER_NAMESPACE
    assert gaps == ()
    asked = pool(**STRICT, write=("/a",), read=("/b",), network=False)
    lockdown, _gaps = plan(asked, {})
    assert (lockdown.write, lockdown.read, lockdown.network) == (
        ("/a",),
        ("/b",),
        False,
    )


@pytest.mark.parametrize("feature", [f for f in Feature if f is not Feature.ADMIN])
def test_the_strict_level_is_refused_when_anything_is_missing(feature):
    """Each measure that is not available is named, with the reason."""
    with pytest.raises(ConfigError) as caught:
        plan(pool(**STRICT), {feature: f"no {feature.name}"})
    assert f"no {feature.name}" in str(caught.value)
    needing = [
        one for one in MEASURES if feature in one.needs and one.asked_by in STRICT_BY
    ]
    assert needing
    for measure in needing:
        assert f"{measure.name!r} of sandbox = strict is not possible" in str(
            caught.value
        )


def test_without_any_support_every_strict_measure_is_named():
    """For example for an ordinary user on another system."""
    with pytest.raises(ConfigError) as caught:
        plan(pool(**STRICT), NOTHING)
    unnamed = [
        one
        for one in MEASURES
        if one.asked_by in STRICT_BY and repr(one.name) not in str(caught.value)
    ]
    # It takes nothing; and an ordinary user's children are that user.
    assert unnamed == [OWN_ENVIRONMENT, OWN_USER]


def test_contradictions_of_the_strict_level_are_refused():
    """Options of the strict level need it; what it removes cannot be configured."""
    with pytest.raises(ConfigError, match="new_privileges = true contradicts"):
        plan(pool(**STRICT, new_privileges=True), {})
    for level in (SandboxLevel.OFF, SandboxLevel.STANDARD):
        with pytest.raises(ConfigError, match=r"read = .* is for sandbox"):
            plan(pool(sandbox=level, read=("/srv",)), {})


def test_strict_children_see_only_listed_variables():
    """What programs need to run and to use TLS, and nothing that may be a secret."""
    expected = (
        *("PATH", "HOME", "USER", "LOGNAME"),
        *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM"),
        *("PYTHON*", "VIRTUAL_ENV"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
        "*_NUM_THREADS",
    )
    assert expected == VARIABLES


def test_variables_are_named_or_all():
    """At the strict level those of its list, and those that the pool names."""
    assert variables(pool()) is None
    assert variables(pool(env=("A",))) == ("A",)
    assert variables(pool(**STRICT)) == VARIABLES
    assert variables(pool(**STRICT, env=("A",))) == (*VARIABLES, "A")
