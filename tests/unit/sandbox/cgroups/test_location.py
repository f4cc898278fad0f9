"""Which cgroup this process is in, and below which one it may make its own."""

import pytest

from jobpool.sandbox.cgroups.location import (
    Mount,
    NoCgroupError,
    base,
    directory,
    here,
    parse_cgroup,
    parse_mounts,
)

PURE = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
HYBRID = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
)
NOWHERE = "22 1 8:1 / / rw - ext4 /dev/sda1 rw"


def proc(tmp_path, cgroup, mountinfo):
    """Make the two files that are read."""
    (tmp_path / "cgroup").write_text(cgroup)
    (tmp_path / "mountinfo").write_text(mountinfo)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/jobpool.service\n", "/system.slice/jobpool.service"),
        ("4:memory:/docker/a\n1:name=systemd:/x\n0::/\n", "/"),
        ("0::/gone (deleted)\n", "/gone"),
        ("4:memory:/docker/a\n", None),
        ("", None),
    ],
)
def test_the_line_of_cgroup_version_2_has_no_controller_name(text, path):
    """Version 1's lines, on hybrid hosts, say nothing about it."""
    assert parse_cgroup(text) == path


def test_mounts_of_version_2_are_found_among_others():
    """With optional fields or none, with blanks in their names, on hybrid hosts."""
    odd = r"9 1 0:9 /a\040b /mnt/c\040d rw master:1 shared:2 - cgroup2 none rw"
    assert list(parse_mounts(PURE)) == [Mount("/", "/sys/fs/cgroup")]
    assert list(parse_mounts(HYBRID)) == [Mount("/", "/sys/fs/cgroup/unified")]
    assert list(parse_mounts(odd)) == [Mount("/a b", "/mnt/c d")]
    assert list(parse_mounts(NOWHERE)) == []


@pytest.mark.parametrize(
    ("path", "root", "found"),
    [
        ("/", "/", "/m"),
        ("/a/b", "/", "/m/a/b"),
        ("/a/b", "/a", "/m/b"),
        ("/a", "/a", "/m"),
        ("/other", "/a", None),
        ("/../outside", "/", None),
        ("/ab", "/a", None),
    ],
)
def test_a_cgroup_is_seen_below_its_mount_or_not_at_all(path, root, found):
    """A container sees a part of the hierarchy, and may be outside of it."""
    assert directory(path, Mount(root, "/m")) == found


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "why"),
    [
        ("0::/a\n", NOWHERE, "not mounted"),
        ("4:memory:/a\n", HYBRID, "not mounted"),
        ("0::/../b\n", PURE, "/../b is not visible"),
    ],
)
def test_the_reason_for_a_missing_cgroup_is_given(tmp_path, cgroup, mountinfo, why):
    """An operator can read which reason applies."""
    with pytest.raises(NoCgroupError, match=why):
        here(proc(tmp_path, cgroup, mountinfo))


def test_the_own_cgroup_is_found_below_the_mount(tmp_path):
    """On a host with systemd, that of the unit."""
    where = proc(tmp_path, "0::/system.slice/j.service\n", PURE)
    assert here(where) == "/sys/fs/cgroup/system.slice/j.service"


@pytest.mark.parametrize(
    ("delegated", "found"),
    [
        ("/g/unit/supervisor", "/g/unit/supervisor"),
        ("/g/unit", "/g/unit"),  # DelegateSubgroup=supervisor
    ],
)
def test_a_delegated_cgroup_is_used(delegated, found):
    """Either this cgroup or, with DelegateSubgroup, the one above."""
    own = "/g/unit/supervisor"
    is_delegated = {delegated}.__contains__
    assert base(own, is_delegated=is_delegated, is_managed=True) == found


def test_a_cgroup_owned_by_systemd_is_left_alone():
    """Root could write there, but systemd would not know."""
    own = "/g/user.slice/session-3.scope"
    with pytest.raises(NoCgroupError, match=r"not delegated .*Delegate=yes"):
        base(own, is_delegated=lambda _path: False, is_managed=True)
    assert base(own, is_delegated=lambda _path: False, is_managed=False) == own
