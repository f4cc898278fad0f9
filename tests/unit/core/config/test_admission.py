"""The limits on jobs that wait, as configured."""

import pytest

from jobpool.core.rules.admission import Admission, Bound, OnFull, Scope, Sort
from jobpool.errors import ConfigError
from support.configuring import build, toml


def test_each_section_may_limit_what_waits():
    """The whole queue, a pool that runs or not, a kind, a tenant; each is shown."""
    found = build(
        files=toml(
            "[admission]\ndepth_max = 100\nage_max = '5m'\non_full = 'later'\n"
            "[pools.io]\ndepth_max = 10\n[pools.cpu]\nage_max = 'none'\n"
            "[kinds.'shop.mail']\nage_max = '1m'\n[tenants.acme]\ndepth_max = 0\n"
        )
    )
    assert found.settings.admission == Admission(
        depth_max=100,
        age_max_s=300,
        on_full=OnFull.LATER,
        pools={"io": Bound(depth_max=10)},
        kinds={"shop.mail": Bound(age_max_s=60)},
        tenants={"acme": Bound(depth_max=0)},
    )
    shown = {name: value.shown for name, value in found.values.items()}
    assert shown["admission.depth_max"] == "100"
    assert shown["pools.io.depth_max"] == "10"
    assert shown["pools.cpu.depth_max"] == shown["pools.cpu.age_max"] == "none"
    assert shown['kinds."shop.mail".age_max'] == "1m00s"
    assert shown["tenants.acme.depth_max"] == "0"


def test_a_tenant_of_which_only_the_depth_is_limited_has_no_rule_for_supervisors():
    """Else all of them would have to know quotas before anything is leased."""
    found = build(files=toml("[tenants.acme]\ndepth_max = 5"))
    assert found.settings.tenants == {}


@pytest.mark.parametrize(
    ("env", "text", "depth"),
    [
        ({}, "queue_depth_max = 7", 7),
        ({"JOBPOOL_QUEUE_DEPTH_MAX": "8"}, "[admission]\ndepth_max = 7", 8),
        ({"JOBPOOL_QUEUE_DEPTH_MAX": "8"}, "queue_depth_max = 7", 8),
    ],
)
def test_the_former_name_of_the_depth_still_works(env, text, depth):
    """In a file and as a variable, and a variable wins over both names."""
    assert build(env=env, files=toml(text)).settings.admission.depth_max == depth


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("queue_depth_max = 1\n[admission]\ndepth_max = 1", "both are given"),
        ("[admission]\ndepth_max = 0", "0 is out of range"),
        ("[admission]\non_full = 'wait'", "one of refuse, later"),
        ("[admission]\ndepth = 5", "did you mean 'depth_max'"),
        ("[pools.io]\ndepth_max = -1", "-1 is out of range"),
        ("[kinds.k]\nage_max = '0s'", "must be longer than 0"),
        ("admission = 5", r"\[admission\] must be a table"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_place(text, complaint):
    """No limit is taken for another one."""
    with pytest.raises(ConfigError, match=complaint):
        build(files=toml(text))


def test_a_tenant_without_a_value_of_its_own_is_limited_as_everybody():
    """By each option; a job without a tenant is under no tenant's limit."""
    admission = Admission(
        tenants={"*": Bound(depth_max=5, age_max_s=60), "acme": Bound(depth_max=9)}
    )

    def limit_of(tenant):
        return [bound for scope, bound in admission.of("k", "io", tenant) if scope.name]

    assert limit_of("acme") == [Bound(depth_max=9, age_max_s=60)]
    assert limit_of("other") == [Bound(depth_max=5, age_max_s=60)]
    assert limit_of(None) == []


def test_what_is_stored_for_later_is_bounded_as_well():
    """By the usual depth, or by a larger one that is configured."""
    later = Admission(depth_max=5, on_full=OnFull.LATER)
    assert (later.stored_max, later.whole.depth_max) == (10_000_000, 5)
    large = Admission(depth_max=10**8, on_full=OnFull.LATER)
    assert (large.stored_max, large.whole.depth_max) == (10**8, None)
    assert Admission(depth_max=5).stored_max == 5
    assert not Admission(age_max_s=1.0).is_plain
    assert Admission(depth_max=5).is_plain
    assert str(Scope(Sort.QUEUE)) == "the queue"
