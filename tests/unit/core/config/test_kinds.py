"""Unknown kinds in the configuration: which of them are misspelt."""

import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.kinds import settings_of, unknown_kinds
from jobpool.core.config.settings import KindSettings, Settings
from support.configuring import build, toml

SPEC = HandlerSpec(kind="shop.thumbnail", pool="cpu", aliases=("shop.thumb",))
REPORT = AppReport(handlers=(SPEC,))


def settings(*kinds, **more):
    named = {kind: KindSettings(max_attempts=n) for n, kind in enumerate(kinds, 1)}
    given = {"store": "", "app": "", "app_directory": "", "pools": ()}
    return Settings(**given, kinds=named, **more)


@pytest.mark.parametrize(
    ("kind", "more", "is_slip"),
    [
        ("shop.thumbnail", {}, False),
        ("shop.thumb", {}, False),
        ("shop.thumbnial", {}, True),
        ("bill.pay", {}, True),
        ("bill.pay", {"kinds_shared": True}, False),
        ("shop.thumbnial", {"kinds_shared": True}, True),
    ],
)
def test_a_misspelt_kind_is_told_from_another_applications(kind, more, is_slip):
    """In another application's configuration, only a similar name is misspelt."""
    words = list(unknown_kinds(settings(kind, **more), REPORT))
    assert bool(words) is is_slip
    assert all(f'[kinds."{kind}"]' in one for one in words)


def test_a_kind_known_elsewhere_is_not_misspelt():
    """Another supervisor has published it, or a reload has just removed it."""
    assert list(unknown_kinds(settings("old"), REPORT, {"old"})) == []


def test_a_kinds_own_name_takes_precedence_over_its_former_ones():
    """Both may be configured while a name changes."""
    both = settings("shop.thumb", "shop.thumbnail")
    assert settings_of(both, SPEC).max_attempts == 2
    assert settings_of(settings("shop.thumb"), SPEC).max_attempts == 1
    assert settings_of(settings(), SPEC) == KindSettings()


@pytest.mark.parametrize(
    ("flag", "file", "has_jobs_file", "is_shared"),
    [
        ("other.py", "", True, True),
        ("other.py", "", False, False),
        ("other.py", "app = 'shop.py'", False, True),
        ("shop.py", "app = 'shop.py'", True, False),
        (None, "app = 'shop.py'", True, False),
        (None, "", True, False),
    ],
)
def test_a_configuration_is_shared_if_it_names_another_application(
    flag, file, has_jobs_file, is_shared
):
    """By the application that it names, or by the default one."""
    found = build({"app": flag}, files=toml(file), has_jobs_file=has_jobs_file)
    assert found.settings.kinds_shared is is_shared
