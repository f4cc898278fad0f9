"""What all attempts have used is counted, and written at the end at the latest."""

from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.rules.usage.sketch import Measure
from support.site.supervising import Site

MIB = 2**20
APP = """
@jobs.job("cpu", kind="quick")
def quick(n: int):
    return n


@jobs.job("cpu", kind="grow", memory="128MiB", timeout="30s", max_attempts=1)
def grow():
    kept = []
    while True:
        kept.append(bytes(range(256)) * 2**14)


@jobs.job("cpu", kind="hang", timeout="0.3s", max_attempts=1)
def hang():
    time.sleep(60)
"""


def test_every_end_is_counted_and_a_kill_as_at_least_its_limit(tmp_path):
    """Successes by the hundred and kills alike; `status --figures` shows both."""
    with Site(tmp_path, APP) as site:
        supervisor = site.start("cpu=2")
        ids = site.add_many("quick", [{"n": n} for n in range(300)])
        ids += [site.add("grow"), site.add("hang")]
        site.finish_all(ids)
        assert supervisor.stop() == 0
        rows = site.store.sketches()
        (status,) = site.cli("status", "--figures")
        text = CliRunner().invoke(cli, ["status", "--figures", "--store", site.url])
    counts = {
        (kind, measure): sum(
            row.attempts for row in rows if (row.kind, row.measure) == (kind, measure)
        )
        for kind in ("quick", "grow", "hang")
        for measure in Measure
    }
    assert counts == {key: 300 if key[0] == "quick" else 1 for key in counts}
    quick, grow, hang = (
        next(one for one in status["usage"] if one["kind"] == kind)
        for kind in ("quick", "grow", "hang")
    )
    assert (quick["attempts"], quick["cut_short"], quick["at_least"]) == (300, 0, [])
    assert MIB < quick["rss_p50_bytes"] <= quick["rss_p99_bytes"]
    assert grow["cut_short"] == hang["cut_short"] == 1
    assert {"rss_p50_bytes", "duration_p50_s"} <= set(grow["at_least"])
    assert 128 * MIB <= grow["rss_p99_bytes"] <= 1.06 * 128 * MIB
    assert 0.3 <= hang["duration_p99_s"] <= 10.0  # a kill is late on a busy machine
    assert "USAGE (all attempts" in text.stdout
