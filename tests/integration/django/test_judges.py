"""Tests of others on our backend: Django's, and those of django-tasks-db.

They run as they are, on Python 3.12 or newer, whatever Python we run on: Django 6 needs
it. What does not apply has its reason here, and a test fails if it begins to pass.
"""

import pytest

from support.site.django_project import PROJECT
from support.site.judges import DJANGO, TASKS_DB, judges

pytestmark = pytest.mark.timeout(600)
_OTHER_PROCESS = "a task runs in another process, not in the caller's"
_CAN = "it says that the backend cannot do what ours can"
_MEMORY = "it changes or empties the list that the dummy has in memory"
DJANGOS = {
    "test_dummy_backend.DummyBackendTestCase": {
        "test_clear": _MEMORY,
        "test_refresh_result": _MEMORY,
        "test_refresh_result_async": _MEMORY,
    },
    "test_immediate_backend.ImmediateBackendTestCase": {
        "test_cannot_get_result": _CAN,
        "test_cannot_refresh_result": _CAN,
        "test_cannot_pass_run_after": _CAN,
        "test_throws_keyboard_interrupt": _OTHER_PROCESS,
    },
}
_ROWS = "it writes rows of its model, or reads their order; ours has none"
_IDS = "its ids are UUIDs, which a function may make; ours are refs"
_WORKER = "it tests options and output of its worker's command, which ours has not"
_DJANGOS_TASKS = "it looks for words that its own tasks raise; these here are Django's"
TASKS_DBS = {
    "tests.DatabaseBackendTestCase": {
        "test_custom_id_function": _IDS,
        "test_database_backend_app_missing": "ours needs no app to enqueue",
        "test_enqueue_task": _IDS,
        "test_enqueue_task_async": _IDS,
        "test_index_scan_for_ready": _ROWS,
        "test_invalid_task_path": _ROWS,
        "test_missing_task_path": _ROWS,
        "test_postgres_db_id_function": _IDS,
        "test_postgres_id_function_expression": _IDS,
        "test_priority_range_check": _ROWS,
        "test_refresh_result": _ROWS,
        "test_refresh_result_async": _ROWS,
        "test_run_after_null_0016_migration": _ROWS,
        "test_task_name": _ROWS,
        "test_unknown_id_function": _IDS,
    },
    "tests.DatabaseBackendWorkerTestCase": {
        "test_complex_return_value": _DJANGOS_TASKS,
        "test_empty_worker_id": _WORKER,
        "test_failing_task": _DJANGOS_TASKS,
        "test_fractional_interval": _WORKER,
        "test_incorrect_backend": _WORKER,
        "test_infinite_interval": _WORKER,
        "test_invalid_task_path": _ROWS,
        "test_max_tasks": _WORKER,
        "test_missing_task_path": _ROWS,
        "test_negative_interval": _WORKER,
        "test_negative_max_tasks": _WORKER,
        "test_run_after": _ROWS,
        "test_run_after_priority": _ROWS,
        "test_task_import_string": _ROWS,
        "test_too_long_worker_id": _WORKER,
        "test_unknown_backend": _WORKER,
        "test_verbose_logging": _WORKER,
        "test_worker_with_locked_rows": _ROWS,
        "test_zero_interval": _WORKER,
        "test_zero_max_tasks": _WORKER,
    },
}
"""Its other classes test its model, its admin, its locks and the end of its worker's
process: what ours has instead is in test_running.py, and in the tests of the store."""


def names(package, reasons):
    return {
        f"{package}.{case}.{test}" for case, tests in reasons.items() for test in tests
    }


def judged(found, ran, not_applicable):
    """Check that all tests but these have passed, and that there were as many."""
    failed = found["failed"]
    unexpected = failed.keys() - not_applicable
    assert not unexpected, "\n".join(f"{name}\n{failed[name]}" for name in unexpected)
    assert failed.keys() | found["skipped"].keys() == not_applicable
    assert found["ran"] == ran


@pytest.fixture(scope="module")
def those():
    return judges(DJANGO, TASKS_DB)


def test_djangos_own_tests_of_tasks_pass(those, tmp_path):
    """78 of 85. Where they name Django's dummy and immediate backends they get ours."""
    found = those.run("judged_django", tmp_path, "tasks", path=["django-6.1.3/tests"])
    judged(found, 85, names("tasks", DJANGOS))


def test_the_tests_of_django_tasks_db_pass(those, tmp_path):
    """26 of 61: those that enqueue, and those of its worker, which is a supervisor."""
    found = those.run(
        "judged_tasks_db",
        tmp_path,
        *(f"tests.{case}" for case in TASKS_DBS),
        path=["django-6.1.3/tests", "django_tasks_db-0.13.0"],
        JUDGES_BACKEND="django_tasks_db.DatabaseBackend",
    )
    judged(found, 61, names("tests", TASKS_DBS))


def test_our_own_tests_pass_on_django_6(those, tmp_path):
    """Those of `project/shop/tests.py`, which run elsewhere with the Django at hand."""
    found = those.run(
        "shop",
        tmp_path,
        "shop",
        path=[PROJECT],
        DJANGO_SETTINGS_MODULE="settings",
        SITE=str(tmp_path),
    )
    judged(found, found["ran"], set())
    assert found["ran"] >= 30
