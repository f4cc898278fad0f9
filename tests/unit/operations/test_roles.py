"""Who may do what: one table, over all actions and all roles."""

import importlib
import pkgutil

import pytest

import jobpool.operations
from jobpool.operations.action import Action
from jobpool.operations.operate import LEAST_ROLE
from jobpool.operations.principal import Role

MAY = {
    "viewer": set(),
    "operator": {
        *("cancel", "retry", "release", "replay", "reveal", "enqueue"),
        *("pause", "resume", "stop"),
        *("schedules put", "schedules pause", "schedules resume", "schedules run"),
        *("schedules backfill", "quotas set", "quotas reset"),
        *("tenants set", "tenants remove"),
        *(
            "flows cancel",
            "flows pause",
            "flows resume",
            "flows approve",
            "flows retry",
        ),
    },
    "admin": {
        *("cancel", "retry", "release", "replay", "reveal", "enqueue"),
        *("pause", "resume", "stop"),
        *("schedules put", "schedules pause", "schedules resume", "schedules run"),
        *("schedules backfill", "quotas set", "quotas reset"),
        *("tenants set", "tenants remove", "schedules remove"),
        *(
            "flows cancel",
            "flows pause",
            "flows resume",
            "flows approve",
            "flows retry",
        ),
        *("prune", "erase", "reclaim", "restored"),
    },
}
"""In full, so that a line which is added or moved is a decision."""


def actions():
    """Return every verb that there is: subclasses that have none of their own."""
    for module in pkgutil.walk_packages(
        jobpool.operations.__path__, "jobpool.operations."
    ):
        importlib.import_module(module.name)
    found, left = set(), [Action]
    while left:
        below = left.pop().__subclasses__()
        found.update(one for one in below if not one.__subclasses__())
        left += below
    return found


def test_every_action_is_in_the_table():
    """An action that nobody thought about cannot be carried out."""
    assert actions() == set(LEAST_ROLE)


@pytest.mark.parametrize("role", Role, ids=lambda role: role.text)
def test_what_each_role_may(role):
    """The product of actions and roles, spelt out."""
    assert {a.name for a, least in LEAST_ROLE.items() if role >= least} == MAY[
        role.text
    ]


def test_each_verb_is_one_action():
    """The trail can be searched by it, and no verb is that of a refusal."""
    names = [action.name for action in LEAST_ROLE]
    assert len(set(names)) == len(names)
    assert "refused" not in names


def test_roles_grow():
    """Each may do what the ones below it may."""
    assert list(Role) == sorted(Role)
    assert [role.text for role in Role] == ["viewer", "operator", "admin"]
