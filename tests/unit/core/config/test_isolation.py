"""Options of isolation and memory, and what is shown of a store's URL."""

import pytest

from jobpool.core.config.settings import GIB
from jobpool.core.config.store_url import without_password
from jobpool.errors import ConfigError
from support.configuring import build, toml


def test_isolation_options_are_read():
    """Paths, cores and levels as written; lists and ranges mean the same."""
    text = """
memory_budget = "3GiB"
[pools.cpu]
sandbox = "off"
write = ["/srv/pictures", "cache"]
network = false
new_privileges = true
nice = 5
cpus = "0-2, 5"
[pools.io]
cpus = [1, 0]
write = []
sandbox = "strict"
read = ["/srv/models"]
[kinds."shop.pay"]
memory_growth = 2
"""
    settings = build(files=toml(text)).settings
    cpu, io = settings.pools
    assert (cpu.sandbox, cpu.network, cpu.new_privileges) == ("off", False, True)
    assert (cpu.write, cpu.nice) == (("/srv/pictures", "cache"), 5)
    assert (cpu.cpus, io.cpus, io.write) == ((0, 1, 2, 5), (0, 1), ())
    assert (io.sandbox, io.read, cpu.read) == ("strict", ("/srv/models",), None)
    assert settings.kinds["shop.pay"].limits.memory_growth == 2.0
    assert settings.memory_budget_bytes == 3 * GIB
    plain = build().settings
    assert [pool.sandbox for pool in plain.pools] == ["standard"] * 2
    assert plain.memory_budget_bytes == int(0.8 * 64 * GIB)


@pytest.mark.parametrize("factor", [1, 16])
def test_the_bounds_of_memory_growth_are_allowed(factor):
    """1: not at all; 16: each time as much again as a large host has."""
    settings = build(
        files=toml(f"[kinds.'shop.pay']\nmemory_growth = {factor}")
    ).settings
    assert settings.kinds["shop.pay"].limits.memory_growth == factor


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[pools.cpu]\nsandbox = 'strong'",
            "expected one of off, standard, strict, got 'strong'",
        ),
        ("[pools.cpu]\nsandbox = []", "expected one of off, standard"),
        ("[pools.cpu]\nwrite = '/srv'", 'expected "all" or a list of paths'),
        ("[pools.cpu]\nwrite = ['']", 'expected "all" or a list of paths'),
        ("[pools.cpu]\nnetwork = 'no'", "expected true or false"),
        ("[pools.cpu]\nnice = -5", "out of range; expected 0 to 19"),
        ("[pools.cpu]\ncpus = []", 'expected "all" or the numbers of cores'),
        ("[pools.cpu]\ncpus = '3-1'", "the numbers of cores"),
        ("[pools.cpu]\ncpus = [true]", "the numbers of cores"),
        ("[pools.cpu]\ncpus = '0,99999'", "the numbers of cores"),
        ("[kinds.'shop.pay']\nmemory_growth = 0.5", "expected a factor from 1 to 16"),
        ("[kinds.'shop.pay']\nmemory_growth = 16.1", "expected a factor from 1 to 16"),
        ("[kinds.'shop.pay']\nmemory_growth = nan", "expected a factor from 1 to 16"),
        ("[kinds.'shop.pay']\nmemory_growth = true", "expected a factor from 1 to 16"),
        ("memory_budget = 'much'", "is not a size"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(text, message):
    """The error names the option."""
    with pytest.raises(ConfigError) as caught:
        build(files=toml(text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://me:secret@db/shop?password=secret&sslmode=require",
            "postgresql://me:***@db/shop?password=***&sslmode=require",
        ),
        ("postgresql://db?password=secret", "postgresql://db?password=***"),
        (
            "postgresql://db?sslmode=require&host=a&mine=secret",
            "postgresql://db?sslmode=require&host=a&mine=***",
        ),
        ("postgresql://me:sec/ret@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:sec?ret@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:sec@ret@db/shop", "postgresql://me:***@db/shop"),
        ("postgres:me:secret@db", "postgres:me:***@db"),
        (
            "postgresql://db/shop?pass%77ord=secret&sslpassword=secret&schema=x",
            "postgresql://db/shop?pass%77ord=***&sslpassword=***&schema=x",
        ),
        (
            "postgresql://db/shop?password=secret&application_name=a@b",
            "postgresql://db/shop?password=***&application_name=a@b",
        ),
        (
            "postgresql://me@a,b:5/shop?host=/run",
            "postgresql://me@a,b:5/shop?host=/run",
        ),
    ],
)
def test_a_password_is_not_shown(url, shown):
    """Of a store's URL people see the harmless options and no password."""
    assert build({"store": url}).values["store"].shown == shown
    assert "secret" not in without_password(url)
