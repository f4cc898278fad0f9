"""Bugs of incidents and alerts that tests of one part must see."""

from planted_bugs.bug import Edit, Promise, SuiteBug

_STORES = "tests/store/contract/test_alerts.py"
_RECEIVERS = "tests/unit/monitoring/alerts/test_receivers.py"
_WATCHER = "tests/unit/monitoring/alerts/test_watcher.py"
_SQL = "store/sqlite/sql/alerts.sql"


def _bug(name: str, tests: str, file: str, *texts: str) -> SuiteBug:
    """Return a bug; *texts* are old and new in turn."""
    edits = tuple(
        Edit(file, *pair) for pair in zip(texts[::2], texts[1::2], strict=True)
    )
    return SuiteBug(name, Promise.TOLD, tests, edits)


ALERT_BUGS = (
    _bug(
        "all who have looked at once have the turn",
        _STORES,
        _SQL,
        "WHERE jobpool_watch.turn = :turn\n",
        "WHERE jobpool_watch.turn >= :turn\n",
    ),
    _bug(
        "two send an alert at once",
        _STORES,
        _SQL,
        "WHERE id = :id AND done_at_ms IS NULL AND next_at_ms <= :now_ms\n",
        "WHERE id = :id AND done_at_ms IS NULL\n",
        "  AND a.next_at_ms <= :now_ms\n",
        "  AND a.next_at_ms > 0\n",
    ),
    _bug(
        "a claim that has lapsed is settled",
        _STORES,
        _SQL,
        "WHERE id = :id AND tries = :tries AND state = 'sending'\n",
        "WHERE id = :id AND :tries > 0 AND state = 'sending'\n",
    ),
    _bug(
        "an end is told before its beginning",
        _STORES,
        _SQL,
        "b.incident = a.incident AND b.receiver = a.receiver AND b.id < a.id\n",
        "b.incident = a.incident AND b.receiver = a.receiver AND b.id < 0\n",
    ),
    _bug(
        "alerts of others are given up with those of nobody",
        _STORES,
        _SQL,
        "  AND receiver NOT IN (SELECT value FROM json_each(:receivers))\n",
        "  AND :receivers IS NOT NULL\n",
    ),
    _bug(
        "an alert that was refused once is given up",
        _WATCHER,
        "monitoring/alerts/watcher.py",
        "        if is_new and not isinstance(refusal, Unreadable):\n",
        "        if not is_new and not isinstance(refusal, Unreadable):\n",
    ),
    _bug(
        "the heartbeat goes on though nobody is told",
        _WATCHER,
        "monitoring/alerts/watcher.py",
        "        return bool(is_alive) and unheard_ms < _UNHEARD_MS\n",
        "        return bool(is_alive) and unheard_ms >= 0\n",
    ),
    _bug(
        "an answer that is no success counts as one",
        _RECEIVERS,
        "monitoring/alerts/receivers/http.py",
        "            if answer.status // 100 == HTTPStatus.OK // 100:\n",
        "            if answer.status // 100 >= HTTPStatus.OK // 100:\n",
    ),
    _bug(
        "a command that has failed has taken it",
        _RECEIVERS,
        "monitoring/alerts/receivers/command.py",
        "        if process.returncode == 0:\n",
        "        if process.returncode >= 0:\n",
    ),
)
