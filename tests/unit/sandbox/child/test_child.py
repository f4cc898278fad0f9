"""A child's attempt, where no process is needed to see it."""

import pytest

from jobpool.sandbox.child.child import Child
from jobpool.sandbox.child.encoding import PLAIN, Encoding

SECRET = "4711"


class Unrestorable:
    """A baseline in which something of the handler's raises."""

    def restore(self, **_options):
        raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ("encoding", "is_told"), [(PLAIN, True), (Encoding(None, "fernet"), False)]
)
def test_what_hinders_a_restoration_is_told_without_what_is_encoded(encoding, is_told):
    """The handler's hook may have seen anything; its class is enough to look for it."""
    child = object.__new__(Child)
    child._baseline, child._encoding = Unrestorable(), encoding
    child._deadline_s, child._was_full = 0.0, False
    surprise = child._restore(may_be_quick=True).surprise
    assert surprise.startswith("its process could not be restored")
    assert "RuntimeError" in surprise
    assert (SECRET in surprise) == is_told
