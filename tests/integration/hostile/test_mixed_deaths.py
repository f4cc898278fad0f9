"""Whatever jobs die of, their supervisor holds no more resources than before."""

import sys
from pathlib import Path

LIB = Path(__file__).parents[3] / "scripts" / "lib"
DEATHS = 66
GROWTH_MAX_KIB = 1024


def test_nothing_is_left_of_mixed_deaths(tmp_path, monkeypatch):
    """No process, descriptor, memfd or temporary file. scripts/figures runs 1,000."""
    monkeypatch.setattr(sys, "path", [str(LIB), *sys.path])
    from figures.deaths import census_around

    before, after, _took_s = census_around(
        tmp_path, f"sqlite:///{tmp_path}/jobs.db", DEATHS, warm=33
    )
    counted = before._replace(rss_kib=0)
    assert after._replace(rss_kib=0) == counted
    assert counted.processes > 5
    assert counted.memfds > 5
    assert after.rss_kib - before.rss_kib < GROWTH_MAX_KIB
