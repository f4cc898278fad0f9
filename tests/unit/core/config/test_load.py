"""Settings from layers: grammar, precedence, origins, defaults, errors."""

import math
from pathlib import Path

import pytest

from jobpool.core.config.load import (
    COMMANDS_ONLY,
    Machine,
    client_settings,
    read_sources,
)
from jobpool.core.config.options import COMMAND, KIND, QUOTA, TENANT
from jobpool.core.config.settings import GIB, MIB, Retention
from jobpool.errors import ConfigError
from support.configuring import HERE, build, pool, toml


def test_without_settings_the_defaults_apply():
    """Pool cpu is as wide as the cores, io is 16; limits have their defaults."""
    found = build()
    settings = found.settings
    assert [(p.name, p.size_min, p.size_max) for p in settings.pools] == [
        ("cpu", 4, 4),
        ("io", 16, 16),
    ]
    cpu, io = (pool(found, name).limits for name in ("cpu", "io"))
    assert (cpu.timeout_s, cpu.memory_bytes) == (600, GIB)
    assert (io.timeout_s, io.memory_bytes) == (120, 512 * MIB)
    assert pool(found, "io").drain_s == 25
    assert settings.retention == Retention()
    assert settings.payload_max_bytes == settings.result_max_bytes == MIB
    assert (settings.app, settings.app_directory) == ("jobs.py", HERE)
    assert settings.store == "sqlite:////srv/shop/jobpool.db"
    assert {value.origin for value in found.values.values()} == {
        "default",
        "default (the cores)",
        "default (80 % of the memory here)",
    }


def test_retention_has_an_age_and_may_have_a_count():
    """A value by itself is the age; what a table leaves out keeps its default."""
    files = toml(
        "[retention]\noutputs = '1GiB'\nsucceeded = '1d'\ncanceled = { count = 5 }\n"
        "quarantined = { age = 'forever', count = 'none' }\n"
        "[retention.dead]\nage = '90d'\ncount = 100000"
    )
    found = build(files=files)
    assert found.settings.retention == Retention(
        outputs_bytes=GIB,
        succeeded_s=86400.0,
        canceled_count=5,
        dead_s=90 * 86400.0,
        dead_count=100_000,
    )
    shown = {name: (v.shown, v.origin) for name, v in found.values.items()}
    assert shown["retention.dead"] == ("90d00h", "jobpool.toml [retention.dead] age")
    assert shown["retention.dead.count"][0] == "100,000"
    assert shown["retention.succeeded"] == (
        "24h00m",
        "jobpool.toml [retention] succeeded",
    )
    assert shown["retention.succeeded.count"] == ("none", "default")


def test_default_memory_is_never_over_half_of_the_machines():
    """On a small machine the default shrinks and says so.

    An explicit value does not.
    """
    small = Machine(cores=1, memory_bytes=GIB)
    found = build(machine=small)
    assert pool(found, "cpu").limits.memory_bytes == 512 * MIB
    assert found.values["pools.cpu.memory"].origin.startswith("default (half")
    wish = build({"memory": "cpu=1GiB"}, machine=small)
    assert pool(wish, "cpu").limits.memory_bytes == GIB


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("cpu=4,io=16", {"cpu": (4, 4), "io": (16, 16)}),
        ("cpu=2..8", {"cpu": (2, 8)}),
        (" gpu = 1 , cpu = 3 ", {"gpu": (1, 1), "cpu": (3, 3)}),
        ("cpu=1024", {"cpu": (1024, 1024)}),
    ],
)
def test_pools_are_named_and_sized_in_one_grammar(text, sizes):
    """--pools says which pools there are and how wide each is."""
    pools = build({"size": text}).settings.pools
    assert {p.name: (p.size_min, p.size_max) for p in pools} == sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu=0", "--pools cpu: 0 is out of range; expected 1 to 1024"),
        ("cpu=1025", "--pools cpu: 1025 is out of range"),
        ("cpu=abc", "--pools cpu: 'abc' is not a size; expected a number"),
        ("cpu=-1", "--pools cpu: '-1' is not a size"),
        ("cpu=NaN", "--pools cpu: 'NaN' is not a size"),
        ("cpu=1e3", "'1e3' is not a size"),
        ("cpu=٤", "is not a size"),
        ("cpu=" + "9" * 5000, "is not a size"),
        ("cpu=8..2", "--pools cpu: 8..2 is out of range"),
        ("cpu=2..", "is not a size"),
        ("cpu=4,cpu=2", "--pools: pool 'cpu' is named twice"),
        ("", "--pools: '' is not of the form cpu=…,io=…"),
        ("cpu", "is not of the form"),
        ("cpu=4,", "is not of the form"),
        ("=4", "is not of the form"),
        ("CPU=4", "pool 'CPU' is not a valid name"),
    ],
)
def test_wrong_pools_are_refused_with_what_was_expected(text, message):
    """Every wrong --pools is refused before anything starts, with a remedy."""
    with pytest.raises(ConfigError) as caught:
        build({"size": text}, has_jobs_file=False)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"memory": "gpu=1GiB"}, "--memory: there is no pool 'gpu'"),
        ({"memory": "cpi=1GiB"}, "did you mean 'cpu'?"),
        ({"memory": "cpu=-1GiB"}, "--memory cpu: '-1GiB' is not a size"),
        ({"memory": "cpu=nan"}, "--memory cpu: 'nan' is not a size"),
        ({"memory": "cpu=9999999TiB"}, "out of range"),
        ({"memory": "0"}, "out of range"),
        ({"timeout": "cpu=0"}, "--timeout cpu: must be longer than 0"),
        ({"timeout": "cpu=-5s"}, "--timeout cpu: '-5s' is not a duration"),
        ({"timeout": "cpu=nan"}, "is not a duration"),
        ({"timeout": "cpu=9999999d"}, "out of range"),
        ({"timeout": ""}, "--timeout"),
        ({"drain": "soon"}, "'soon' is not a duration"),
        ({"app": " "}, "--app: expected text"),
        ({"store": "sqlite:///"}, "names no file"),
        ({"store": "sqlite:relative.db"}, "names no file"),
    ],
)
def test_wrong_values_name_their_flag_and_the_remedy(flags, message):
    """A wrong flag is refused; the error begins with what was written."""
    with pytest.raises(ConfigError) as caught:
        build(flags)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pools.cpu]\nsize = 0", "jobpool.toml [pools.cpu] size: 0 is out of range"),
        ("[pools.cpu]\nsize = true", "is not a size"),
        ("[pools.cpu]\nsize = 2.5", "is not a size"),
        ("[pools.cpu]\ntimeout = nan", "out of range"),
        ("[pools.cpu]\ntimeout = inf", "out of range"),
        ("[pools.cpu]\ntimeout = -1", "out of range"),
        ("[pools.cpu]\nmemory = nan", "expected a size"),
        ("[pools.cpu]\nrecycle = 0", "0 is out of range; expected 1 to"),
        ("[pools.cpu]\npreload = 1", "expected true or false"),
        ("[pools.cpu]\nenv = ['A B']", "names of environment variables"),
        ("[pools.cpu]\nmemmory = 1", "[pools.cpu]: unknown option 'memmory'; did you"),
        ("[pools.gpu]\nmemory = '1GiB'", "pool 'gpu' has no size"),
        ("[pool.cpu]\nsize = 1", "unknown option 'pool'; did you mean 'pools'?"),
        ("[pools]\ncpu = []", "pools.cpu must be a table"),
        ("pools = 4", "pools must be a table"),
        ("kinds = 4", "kinds must be a table"),
        ("[kinds.'shop.pay']\nmax_attempts = 0", "0 is out of range"),
        ("[kinds.'shop.pay']\nretries = 3", "unknown option 'retries'"),
        ("[kinds.'no way']\ntimeout = 3", "is not a valid name"),
        ("[kinds.a]\nconcurrency = 0", "[kinds.a] concurrency: 0 is out of range"),
        ("[commands.a]\npool = 'cpu'", "[commands.a]: argv is missing"),
        ("[commands.a]\nargv = ['a']", "[commands.a]: pool is missing"),
        ("[commands.a]\nargv = 'ls -l'", "argv: expected a list of a program"),
        ("[commands.a]\nargv = []", "argv: expected a list of a program"),
        ("[commands.a]\nargv = ['a', 3]", "argv: expected a list of a program"),
        ("[commands.a]\nexit_codes = 'x'", "exit_codes: expected a table"),
        ("[commands.a]\nexit_codes = {3 = 4}", "exit_codes: expected a table"),
        ("[commands.a]\ndefaults = {a = true}", "defaults: expected a table"),
        ("[commands.a]\nenv = {A = 1}", "env: expected a table"),
        ("[commands.a]\nresult = 'much'", "result: 'much' is not a size"),
        ("[commands.a]\nshell = true", "[commands.a]: unknown option 'shell'"),
        ("[commands.'no way']\npool = 'cpu'", "is not a valid name"),
        ("quotas = 4", "quotas must be a table"),
        ("[quotas.'no way']\nrate = '1/s'", "[quotas.\"no way\"]: 'no way' is no name"),
        ("[quotas.tenant]\nrate = '1/s'", "'tenant' is no name for a quota"),
        ("[quotas.a]\nrate = 10", "[quotas.a] rate: '10' is not a rate"),
        ("[quotas.a]\nrate = '0/s'", "0/s is out of range"),
        ("[quotas.a]\nburst = 0", "[quotas.a] burst: 0 is out of range"),
        ("[quotas.a]\nscope = 'pool'", "expected one of fleet, host, got 'pool'"),
        ("[quotas.a]\nwait = 'long'", "[quotas.a] wait: 'long' is not a duration"),
        ("[quotas.a]\nper = 'tenant'", "[quotas.a]: unknown option 'per'"),
        ("[tenants.'']\nweight = 1", '[tenants.""]: expected a tenant\'s name'),
        ("[tenants.a]\nweight = 0", "[tenants.a] weight: expected a weight from 0.01"),
        ("[tenants.a]\nwait = 3", "[tenants.a]: unknown option 'wait'; did you mean"),
        ("[tenants.a]\nburst = 3", "[tenants.a]: burst 3 without a rate says nothing"),
        (
            "[tenants.a]\nburst = 900000\nrate = '1/d'",
            "[tenants.a]: a burst of 900,000 at 1/d would take",
        ),
        ("[retention]\ndeed = '1d'", "did you mean 'dead'?"),
        ("[retention]\ndead = -1", "out of range"),
        ("[retention]\ndead = { count = 0 }", "[retention.dead] count: 0 is out of"),
        ("[retention]\ndead = { count = 1000001 }", "expected 1 to 1000000"),
        ("[retention]\ndead = { count = '9d' }", "expected a whole number, got '9d'"),
        ("[retention]\ndead = { age = 'old' }", "[retention.dead] age: "),
        ("[retention]\ndead = { cuont = 1 }", "did you mean 'count'?"),
        ("[retention]\ndead = [1]", "expected a duration"),
        ("queue_depth_max = 0", "0 is out of range"),
        ("store = 5", "expected text"),
        ("x = ", "is not valid TOML"),
        ("x = " + "9" * 5000, "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
        ("[pools.cpu]\nsize = 0x" + "f" * 5000, "a number that long"),
        ("[pools.cpu]\nrecycle = 0x" + "f" * 5000, "a number that long"),
        ("[pools.cpu]\nmemory = 0x" + "f" * 5000, "a number that long"),
    ],
)
def test_wrong_files_name_the_place_and_the_remedy(text, message):
    """A wrong file is refused; the error names the table and the option."""
    with pytest.raises(ConfigError) as caught:
        build(files=toml(text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pools.cpu]\nmemory='2GiB'\nmemory_max='1GiB'", "memory 2GiB"),
        ("[pools.cpu]\ntimeout='2h'\ntimeout_max='1h'", "timeout 2h00m"),
        ("[pools.cpu]\ntimeout='1m'\nsoft_timeout='1m'", "soft_timeout 1m00s"),
        ("[kinds.a]\ntimeout='1m'\nsoft_timeout='2m'", "soft_timeout 2m00s"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(text, message):
    """Both sides of a contradiction are named with their origins."""
    with pytest.raises(ConfigError) as caught:
        build(files=toml(text))
    assert message in str(caught.value)
    assert "is not below" in str(caught.value)


def test_a_default_above_the_maximum_is_no_contradiction():
    """Only explicit values can contradict: the maximum caps a default."""
    limits = pool(build(files=toml("[pools.cpu]\ntimeout_max='1m'")), "cpu").limits
    assert (limits.timeout_s, limits.timeout_max_s) == (600, 60)


def test_flags_win_over_environment_over_file_over_default():
    """Each layer is removed in turn, and the origin names the winner."""
    files = toml("[pools.cpu]\nmemory = '3GiB'", "conf/jobpool.toml")
    env = {"JOBPOOL_MEMORY": "cpu=2GiB"}
    flags = {"memory": "cpu=1GiB"}
    name = "pools.cpu.memory"
    seen = [
        (v.shown, v.origin)
        for v in (
            build(flags, env=env, files=files).values[name],
            build(env=env, files=files).values[name],
            build(files=files).values[name],
            build().values[name],
        )
    ]
    assert seen == [
        ("1GiB", "flag --memory"),
        ("2GiB", "env JOBPOOL_MEMORY"),
        ("3GiB", "conf/jobpool.toml [pools.cpu] memory"),
        ("1GiB", "default"),
    ]


def test_a_value_without_a_pool_applies_to_every_pool():
    """A bare --timeout applies to all, but a named pool's own value wins."""
    found = build({"timeout": "5s"}, env={"JOBPOOL_TIMEOUT": "io=9s"})
    assert [p.limits.timeout_s for p in found.settings.pools] == [5, 5]
    found = build(env={"JOBPOOL_TIMEOUT": "5s"}, files=toml("[pools.io]\ntimeout='9s'"))
    assert [p.limits.timeout_s for p in found.settings.pools] == [5, 5]


def test_an_empty_variable_is_unset():
    """Compose files and shells set variables to nothing: that sets nothing."""
    env = {"JOBPOOL_POOLS": "", "JOBPOOL_STORE": "", "JOBPOOL_CONFIG": ""}
    assert build(env=env) == build()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[pools.cpu]\nmemory = '2GiB'", ["cpu", "io"]),
        ("[pools.cpu]\nsize = 2", ["cpu"]),
        ("[pools.gpu]\nsize = 1\n[pools.io]\ntimeout = '1m'", ["gpu", "io"]),
        ("pools = 'cpu=2,gpu=1'", ["cpu", "gpu"]),
        ("[pools]\ncpu = 2\nio = '2..4'", ["cpu", "io"]),
    ],
)
def test_a_file_that_sizes_a_pool_defines_all_pools(text, names):
    """Tuning a limit does not remove the other default pool; sizing one does."""
    assert [p.name for p in build(files=toml(text)).settings.pools] == names


def test_configured_pools_need_not_be_run():
    """--pools may leave out pools of the file: another supervisor runs them."""
    files = toml("[pools.gpu]\nsize = 1\nmemory = '8GiB'")
    settings = build({"size": "cpu=2"}, files=files).settings
    assert [p.name for p in settings.pools] == ["cpu"]


def test_kinds_are_overridden_by_the_file():
    """[kinds."K"] becomes limits and budgets of that kind, nothing else."""
    found = build(
        files=toml('[kinds."shop.pay"]\ntimeout = "30s"\nmax_crashes = 1'),
    )
    kind = found.settings.kinds["shop.pay"]
    assert (kind.limits.timeout_s, kind.limits.memory_bytes) == (30, None)
    assert (kind.max_attempts, kind.max_crashes) == (None, 1)
    origin = found.values['kinds."shop.pay".timeout'].origin
    assert origin == 'jobpool.toml [kinds."shop.pay"] timeout'


def test_no_application_is_an_error_with_three_remedies():
    """No application named and no jobs.py: the error names the three ways."""
    with pytest.raises(ConfigError, match=r"no jobs\.py in /srv/shop") as caught:
        build(has_jobs_file=False)
    assert all(word in str(caught.value) for word in ("--app", "JOBPOOL_APP", "app ="))
    assert build({"app": "shop.jobs"}, has_jobs_file=False).settings.app == "shop.jobs"


def test_the_first_file_that_exists_is_read():
    """In order: conf/jobpool.toml, jobpool.toml, pyproject.toml; one is read."""
    files = {}
    files |= toml("[tool.jobpool]\napp = 'third'", "pyproject.toml")
    assert build(files=files).settings.app == "third"
    files |= toml("app = 'second'", "jobpool.toml")
    assert build(files=files).settings.app == "second"
    files |= toml("app = 'first'", "conf/jobpool.toml")
    assert build(files=files).settings.app == "first"


def test_a_pyproject_without_our_table_is_ignored():
    """Another project's pyproject.toml is not our configuration."""
    assert build(files=toml("[project]\nname='x'", "pyproject.toml")).file is None


@pytest.mark.parametrize("how", ["flag", "env"])
def test_a_file_that_was_named_must_exist(how):
    """--config and JOBPOOL_CONFIG are never silently ignored."""
    given = {"config": "no.toml"} if how == "flag" else {}
    env = {"JOBPOOL_CONFIG": "no.toml"} if how == "env" else {}
    asked_by = "--config" if how == "flag" else "JOBPOOL_CONFIG"
    with pytest.raises(ConfigError, match=rf"toml' \(from {asked_by}\) does not exist"):
        build(env=env, **given)


# -- the store ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "env", "files", "expected"),
    [
        (None, {}, {}, "sqlite:////srv/shop/jobpool.db"),
        ("sqlite:///a.db", {}, {}, "sqlite:////srv/shop/a.db"),
        ("a.db", {}, {}, "sqlite:////srv/shop/a.db"),
        ("sqlite:////var/a.db", {}, {}, "sqlite:////var/a.db"),
        ("sqlite:///../x/./a.db", {}, {}, "sqlite:////srv/x/a.db"),
        (None, {"JOBPOOL_STORE": "sqlite:///e.db"}, {}, "sqlite:////srv/shop/e.db"),
        ("a.db", {"JOBPOOL_STORE": "e.db"}, {}, "sqlite:////srv/shop/a.db"),
        (None, {}, toml("store='f.db'"), "sqlite:////srv/shop/f.db"),
        (
            None,
            {},
            toml("store='f.db'", "conf/jobpool.toml"),
            "sqlite:////srv/shop/f.db",
        ),
        (
            None,
            {"JOBPOOL_CONFIG": "/etc/jobpool/shop.toml"},
            {"/etc/jobpool/shop.toml": "store='f.db'"},
            "sqlite:////etc/jobpool/f.db",
        ),
        (
            "a.db",
            {"JOBPOOL_CONFIG": "/etc/jobpool/shop.toml"},
            {"/etc/jobpool/shop.toml": ""},
            "sqlite:////etc/jobpool/a.db",
        ),
        ("postgresql://u@h/db", {}, {}, "postgresql://u@h/db"),
    ],
)
def test_the_store_is_found_by_one_rule(argument, env, files, expected):
    """Argument, variable, file, default; a relative path is relative to the file."""
    sources = read_sources(
        {"store": argument}, env=env, directory=HERE, read_file=files.get
    )
    assert client_settings(sources).store == expected
    built = build({"store": argument}, env=env, files=files)
    assert built.settings.store == expected


# -- conf/jobpool.toml -------------------------------------------------------------


CONF = Path(__file__).parents[4] / "conf" / "jobpool.toml"


def uncommented(text):
    """Remove the comment signs from options and tables, not from prose."""
    rows = []
    for row in text.splitlines():
        bare = row.removeprefix("# ")
        is_option = bare.startswith("[") or bare.split(" = ")[0].isidentifier()
        rows.append(bare if is_option and (" = " in bare or "[" in bare) else row)
    return "\n".join(rows)


def test_the_shipped_file_names_every_option_with_its_default():
    """conf/jobpool.toml, with all comment signs removed, changes nothing."""
    text = CONF.read_text()
    shipped = build(files=toml(uncommented(text), "conf/jobpool.toml"))
    plain = build()
    assert {
        name: value.shown
        for name, value in shipped.values.items()
        if not name.startswith(("commands", "kinds", "quotas", "tenants"))
    } == {name: value.shown for name, value in plain.values.items()}
    defaults = {
        name: value.origin
        for name, value in shipped.values.items()
        if value.origin.startswith("default")
    }
    assert defaults == {}, "not named in the file"
    assert shipped.settings.pools == plain.settings.pools


@pytest.mark.parametrize(
    ("section", "options"),
    [("commands", COMMAND), ("kinds", KIND), ("quotas", QUOTA), ("tenants", TENANT)],
)
def test_the_shipped_file_names_every_option_of_what_has_a_name(section, options):
    """The examples of [kinds."K"] and its like are complete, and valid."""
    text = uncommented(CONF.read_text())
    found = build(files=toml(text, "conf/jobpool.toml"))
    of_section = [name for name in found.values if name.startswith(f"{section}.")]
    assert {name.rpartition(".")[2] for name in of_section} == set(options)


def test_the_shipped_file_as_it_is_sets_nothing():
    """Copied unchanged it has no effect."""
    assert build(files=toml(CONF.read_text(), "conf/jobpool.toml")).settings == (
        build().settings
    )
    assert math.isfinite(build().settings.lease_ttl_s)


@pytest.mark.parametrize(
    ("store", "ttl", "good"),
    [
        ("postgresql://db/shop", "5s", True),
        ("postgresql://db/shop", "4900ms", False),
        ("sqlite:////tmp/x.db", "1s", True),
    ],
)
def test_a_shared_lease_is_long_enough_to_be_renewed(store, ttl, good):
    """Flags win over the environment; below 5 s a shared lease is refused."""
    flags = {"store": store, "lease_ttl": ttl}
    if not good:
        with pytest.raises(ConfigError, match=r"--lease-ttl.*at least 5s"):
            build(flags=flags)
        return
    found = build(flags=flags, env={"JOBPOOL_LEASE_TTL": "9s"})
    assert found.values["lease_ttl"].origin == "flag --lease-ttl"
    assert found.settings.lease_ttl_s == float(ttl[:-1])


def test_commands_are_handlers_and_without_an_application_all_there_is():
    """A jobs.py or a named application has them beside its own."""
    text = """
    [pools.cpu]
    size = 1
    [commands.pdf]
    argv = ["pandoc", "{src}"]
    pool = "cpu"
    exit_codes = {65 = "dead"}
    result = "1KiB"
    """
    found = build(files=toml(text), has_jobs_file=False).settings
    (command,) = found.commands
    assert (command.kind, command.argv) == ("pdf", ("pandoc", "{src}"))
    assert (command.exit_codes, command.result_bytes) == ({"65": "dead"}, 1024)
    assert found.app == COMMANDS_ONLY
    assert build(files=toml(text)).settings.app == "jobs.py"


def test_what_a_command_has_in_its_environment_is_not_shown():
    """Only the names: `jobpool check` prints the configuration."""
    text = "[commands.a]\nargv = ['a']\npool = 'cpu'\nenv = {TOKEN = 'secret'}"
    shown = build(files=toml(text)).values["commands.a.env"].shown
    assert shown == "TOKEN"
