"""What a reload may change, and what needs a restart."""

from __future__ import annotations

from collections.abc import Callable

from jobpool.core.settings import Settings
from jobpool.core.storeurl import without_password
from jobpool.errors import ConfigError


def settings_to_reload(old: Settings, reread: Callable[[], Settings]) -> Settings:
    """Read the settings anew.

    Raises:
        ConfigError: they are wrong, or need a restart.
    """
    new = reread()
    if problem := reload_problem(old, new):
        raise ConfigError(f"{problem}; fix it, or restart")
    return new


def reload_problem(old: Settings, new: Settings) -> str | None:
    """Say why new settings cannot be taken over without a restart; None: they can."""
    if old.store != new.store:
        return (
            f"the store changed from {without_password(old.store)} to "
            f"{without_password(new.store)}"
        )
    before = {pool.name: pool for pool in old.pools}
    after = {pool.name: pool for pool in new.pools}
    if before.keys() != after.keys():
        names, others = ", ".join(before), ", ".join(after)
        return f"the pools changed from {names} to {others}"
    for name, pool in after.items():
        if pool.size_max > before[name].size_max:
            return (
                f"pool {name} would grow to {pool.size_max}, beyond the "
                f"{before[name].size_max} slots that it was started with"
            )
        if (pool.recycle_jobs == 1) != (before[name].recycle_jobs == 1):
            return f"pool {name} would change between fresh and reused children"
    return None
