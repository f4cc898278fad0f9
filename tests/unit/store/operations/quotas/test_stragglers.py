"""Looking for stragglers costs little where there are none."""

from jobpool.store.operations.quotas.stragglers import Walk

KIND = ("io", "pay")
NOW_MS = 1_800_000_000_000


class Session:
    """Has no more than was seen first."""

    def rows(self, _name, **_given):
        return []


def look(walk, now_ms, jobs):
    """Let it look at rows of jobs, each whether it is in a lane; None: it does not."""
    looking = walk.first([KIND], now_ms)
    if not looking.looks:
        return None
    rows = [(0, None, n, n, is_in_lane) for n, is_in_lane in enumerate(jobs)]
    return walk.found(Session(), looking, rows)


def test_after_many_jobs_without_any_straggler_it_rests():
    """In proportion to what the look has cost; every supervisor looks at each job."""
    walk = Walk()
    assert look(walk, NOW_MS + 1000, [True] * 250) == []
    assert look(walk, NOW_MS + 1050, [True] * 250) is None
    assert look(walk, NOW_MS + 1101, [True] * 250) == []


def test_few_jobs_are_looked_at_each_time():
    walk = Walk()
    assert look(walk, NOW_MS + 1000, [True] * 50) == []
    assert look(walk, NOW_MS + 1000, [True] * 50) == []


def test_as_long_as_there_are_stragglers_it_goes_on():
    walk = Walk()
    assert look(walk, NOW_MS + 1000, [True] * 249 + [False]) == [249]
    assert look(walk, NOW_MS + 1000, [False]) == [0]


def test_a_clock_that_was_set_back_does_not_make_it_rest_for_longer():
    walk = Walk()
    assert look(walk, NOW_MS + 1000, [True] * 250) == []
    assert look(walk, NOW_MS - 3_600_000, [False]) == [0]
