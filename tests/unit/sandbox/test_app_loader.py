"""Which object of a module is the application."""

import sys

import pytest

from jobpool.sandbox.app_loader import load_application

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
