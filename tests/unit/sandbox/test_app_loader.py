"""Which object of a module is the application."""

import sys

import pytest

from jobpool.core.application.command import Command
from jobpool.core.config.load import COMMANDS_ONLY
from jobpool.errors import AppError
from jobpool.sandbox.app_loader import load_application

COMMAND = Command(kind="count", argv=("wc", "-l", "{file}"), pool="cpu")
APP = """
from django.conf import LazySettings

from jobpool import JobPool


class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("not yet")


lazy, settings = Lazy(), LazySettings()
jobs = JobPool()
"""


@pytest.fixture
def directory(tmp_path):
    yield tmp_path
    sys.path[:] = [place for place in sys.path if place != str(tmp_path)]
    sys.modules.pop("app_with_lazy_objects", None)


def test_an_object_that_raises_when_asked_for_its_class_is_no_obstacle(directory):
    """Such as Django's settings, before they are configured."""
    (directory / "app_with_lazy_objects.py").write_text(APP)
    found = load_application("app_with_lazy_objects", str(directory))
    assert found is sys.modules["app_with_lazy_objects"].jobs


def test_configured_commands_are_handlers_beside_the_applications(directory):
    (directory / "app_with_lazy_objects.py").write_text(APP)
    found = load_application("app_with_lazy_objects", str(directory), [COMMAND])
    assert [spec.kind for spec in found.handler_specs()] == ["count"]
    with pytest.raises(AppError, match=r"\[commands.count\]: kind 'count' .* is taken"):
        load_application("app_with_lazy_objects", str(directory), [COMMAND])


def test_commands_need_no_application(directory):
    """Each load is an application of its own."""
    for _ in range(2):
        found = load_application(COMMANDS_ONLY, str(directory), [COMMAND])
        assert [spec.kind for spec in found.handler_specs()] == ["count"]


def test_a_command_that_cannot_be_is_refused_by_its_section(directory):
    wrong = Command(kind="sh", argv=("sh", "-c", "{script}"), pool="cpu")
    with pytest.raises(AppError, match=r"\[commands.sh\]: .*the shell would run"):
        load_application(COMMANDS_ONLY, str(directory), [wrong])
