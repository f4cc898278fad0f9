"""Which file system holds a path, by the kernel's table of mounts."""

import pytest

from jobpool.store.sqlite.connection.location import REMOTE, filesystem_of

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /srv rw - nfs4 server:/export rw
31 30 0:27 / /srv/local rw master:1 shared:2 - xfs /dev/vdb rw
32 22 0:28 / /mnt/a\040b rw - cifs //server/share rw
33 22 0:29 / /mnt/twice rw - ext4 /dev/vdc rw
34 22 0:30 / /mnt/twice rw - fuse.sshfs user@host: rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/jobs.db", "ext4"),
        ("/srv/jobs.db", "nfs4"),
        ("/srv/local/jobs.db", "xfs"),
        ("/srvother/jobs.db", "ext4"),
        ("/mnt/a b/jobs.db", "cifs"),
        ("/mnt/twice/jobs.db", "fuse.sshfs"),
    ],
)
def test_the_longest_and_newest_mount_point_counts(path, kind):
    """A mount point hides what is below it; names may have blanks."""
    assert filesystem_of(path, MOUNTS) == kind


def test_remote_file_systems_are_named_as_the_kernel_does():
    """Small letters, no blanks: the comparison is exact."""
    kinds = """
    9p acfs afs beegfs ceph cifs coda davfs fuse.ceph fuse.cephfs fuse.gcsfuse
    fuse.glusterfs fuse.juicefs fuse.s3fs fuse.sshfs glusterfs gpfs lustre ncpfs nfs
    nfs4 smb2 smb3 smbfs vboxsf virtiofs vmhgfs
    """
    assert set(kinds.split()) == REMOTE
