"""The user of a shell or a program."""

import os

from jobpool.operations.principal import Role, local_principal, user_name


def test_a_local_user_is_named_with_rights_and_place(monkeypatch):
    """All rights: the file's or the database's decide."""
    monkeypatch.delenv("SUDO_USER", raising=False)
    found = local_principal("jobpool retry")
    assert found.who == user_name(os.geteuid())
    assert found.role is Role.ADMIN
    assert found.origin == (
        f"jobpool retry on {os.uname().nodename}, uid {os.geteuid()}, pid {os.getpid()}"
    )


def test_behind_sudo_both_users_are_named(monkeypatch):
    """What sudo says does not replace what the kernel says."""
    own = user_name(os.geteuid())
    monkeypatch.setenv("SUDO_USER", "alice")
    assert local_principal("x").who == f"{own} (sudo by alice)"
    monkeypatch.setenv("SUDO_USER", own)
    assert local_principal("x").who == own
    monkeypatch.setenv("SUDO_USER", "a" * 9000)
    assert len(local_principal("x" * 9000).who) == 255
    assert len(local_principal("x" * 9000).origin) == 255


def test_a_user_without_a_name_is_a_number():
    """As in many containers."""
    assert user_name(2**31 - 5) == f"uid {2**31 - 5}"
