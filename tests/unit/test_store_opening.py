"""Which store a URL names."""

import pytest

from jobpool.errors import ConfigError
from jobpool.store import open_store


@pytest.mark.parametrize("odd", ["\0", "?", "#", "\ud800"], ids=ascii)
def test_a_path_that_no_file_here_can_have(tmp_path, odd):
    """It is refused as a setting, before anything is made."""
    with pytest.raises(ConfigError, match="a character that a path here cannot have"):
        open_store(f"sqlite:///{tmp_path}/a{odd}b.db")
    assert list(tmp_path.iterdir()) == []
