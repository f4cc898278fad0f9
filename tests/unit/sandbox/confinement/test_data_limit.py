"""Bounds: for every number, the last accepted value and the first rejected one."""

import sys

import pytest

from jobpool.core.config.options import KEPT, KIND, POOL, TOP
from jobpool.core.config.readers import growth_factor
from jobpool.core.jobs.job import NewJob
from jobpool.core.units import duration_s, show_duration, show_size, size_bytes
from jobpool.errors import ConfigError, UsageError
from jobpool.store.statements import validation

CENTURY_S = 3_155_760_000
MIB, EIB = 1_048_576, 1_152_921_504_606_846_976
END_MS = 253_402_300_799_000  # of year 9999
NOW_MS = 1_800_000_000_000

WHOLE = {
    "queue_depth_max": (TOP, 1, 1_000_000_000_000),
    "recycle": (POOL, 1, 1_000_000_000),
    "nice": (POOL, 0, 19),
    "max_processes": (POOL, 16, 4_194_304),
    "breaker_after": (POOL, 0, 1_000_000),
    "max_attempts": (KIND, 1, 1000),
    "max_crashes": (KIND, 1, 1000),
}


@pytest.mark.parametrize("name", WHOLE)
def test_bounds_of_whole_numbers_in_the_configuration(name):
    """From the smallest to the largest, as numbers and as text."""
    table, lowest, highest = WHOLE[name]
    read = table[name].read
    assert [read(lowest, name), read(str(highest), name)] == [lowest, highest]
    for wrong in (lowest - 1, highest + 1, str(highest + 1), 2.0, True, None, "x"):
        with pytest.raises(ConfigError, match=name):
            read(wrong, name)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0", (0,)),
        ("0-3,6", (0, 1, 2, 3, 6)),
        ("8191", (8191,)),
        ("5-5", (5,)),
        ([2, 0], (0, 2)),
        ("all", None),
    ],
)
def test_cores_are_parsed(text, cores):
    """Single ones, ranges, lists; up to the kernel's own limit."""
    assert POOL["cpus"].read(text, "cpus") == cores


@pytest.mark.parametrize("text", ["8192", "0-8192", "3-2", "", [], [True], "-1", "x"])
def test_invalid_cores_are_refused(text):
    """Nothing is taken from a list with one wrong entry."""
    with pytest.raises(ConfigError, match="cpus: expected"):
        POOL["cpus"].read(text, "cpus")


def test_bounds_of_a_pools_size():
    """1 to 1,024 children, the smaller number first."""
    read = POOL["size"].read
    assert [read(n, "s") for n in (1, 1024, "1..1024", "3..3")] == [
        (1, 1),
        (1024, 1024),
        (1, 1024),
        (3, 3),
    ]
    assert [str(read(text, "s")) for text in ("4", "2..8", "3..3")] == [
        "4",
        "2..8",
        "3",
    ]
    for wrong in (0, 1025, "1..1025", "0..4", "3..2", True):
        with pytest.raises(ConfigError):
            read(wrong, "s")


def test_bounds_of_memory_growth():
    """From 1 to 16."""
    assert [growth_factor(n, "g") for n in (1, 1.5, 16)] == [1.0, 1.5, 16.0]
    for wrong in (0.999, 0, 16.001, True, "2", float("nan")):
        with pytest.raises(ConfigError, match="from 1 to 16"):
            growth_factor(wrong, "g")


@pytest.mark.parametrize("name", ["payload_max", "result_max"])
def test_the_bound_of_a_frame(name):
    """At most 8 MiB."""
    read = TOP[name].read
    assert [read(1, name), read("8MiB", name)] == [1, 8 * MIB]
    for wrong in (0, 8 * MIB + 1):
        with pytest.raises(ConfigError, match=name):
            read(wrong, name)


def test_durations_are_at_most_a_century():
    """A longer one is a mistake; zero is valid in few places."""
    assert duration_s(CENTURY_S) == duration_s("36525d") == CENTURY_S
    assert duration_s(0) == 0
    for wrong in (CENTURY_S + 1, "36525d1s", -0.001):
        with pytest.raises(ConfigError, match="0 to 100 years"):
            duration_s(wrong)
    assert POOL["drain"].read(0, "drain") == 0
    assert KEPT["age"].read("0s", "dead") == 0
    for name in ("timeout", "idle_shrink", "recycle_age"):
        with pytest.raises(ConfigError, match="longer than 0"):
            POOL[name].read("0s", name)


def test_units_of_time_in_seconds():
    """Each in seconds."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    assert {unit: duration_s(f"1{unit}") for unit in units} == units


def test_sizes_are_at_most_an_exbibyte():
    """And at least a byte."""
    assert [size_bytes(1), size_bytes(EIB), size_bytes("1048576TiB")] == [1, EIB, EIB]
    for wrong in (0, EIB + 1, "1048577TiB"):
        with pytest.raises(ConfigError, match="1 byte to 1 EiB"):
            size_bytes(wrong)


def test_a_number_too_long_for_python_to_print_is_shortened():
    """With at most 38 digits."""
    for value, shown in ((2**128 - 1, str(2**128 - 1)), (2**128, "a number that long")):
        with pytest.raises(ConfigError, match=f": {shown[:30]}"):
            size_bytes(value, "size")
        with pytest.raises(ConfigError, match=f": {shown[:30]}"):
            TOP["queue_depth_max"].read(value, "depth")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0ms"),
        (0.0125, "12.5ms"),
        (0.9994, "999ms"),
        (0.9995, "1s"),
        (59.94, "59.9s"),
        (60, "1m00s"),
        (61.4, "1m01s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (3661, "1h01m"),
        (172_799, "47h59m"),
        (172_800, "2d00h"),
        (176_400, "2d01h"),
    ],
)
def test_durations_are_shown_with_a_fitting_unit(seconds, shown):
    """Three figures, and a fitting unit."""
    assert show_duration(seconds) == shown


def test_shown_sizes_change_their_unit_at_1024():
    """Not before."""
    sizes = [1023, 1024, 1023 * 1024, MIB, 1024 * MIB, 1024**4, -1024]
    shown = ["1023B", "1KiB", "1023KiB", "1MiB", "1GiB", "1TiB", "-1KiB"]
    assert [show_size(size) for size in sizes] == shown


SHOWN = {
    "memory_max": (POOL, ["none", "1GiB"]),
    "memory_soft": (POOL, ["none", "0.8", "512MiB"]),
    "timeout_max": (POOL, ["none", "1h00m"]),
    "heartbeat_timeout": (POOL, ["none", "30s"]),
    "max_processes": (POOL, ["auto", "64"]),
    "cpus": (POOL, ["all", "0,2"]),
    "write": (POOL, ["all"]),
    "env": (POOL, ["all"]),
    "preload": (POOL, ["true", "false"]),
    "network": (POOL, ["true", "false"]),
    "sandbox": (POOL, ["off", "standard", "strict"]),
    "breaker_after": (POOL, ["0", "5"]),
    "size": (POOL, ["4", "2..8"]),
    "memory_budget": (TOP, ["none", "1GiB"]),
    "memory_admission": (TOP, ["observed", "limits"]),
    "age": (KEPT, ["forever", "7d00h", "0ms"]),
    "count": (KEPT, ["none", "100"]),
    "keep_output": (POOL, ["all", "failed", "none"]),
    "max_attempts": (KIND, ["5"]),
    "memory_growth": (KIND, []),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_shown_value_can_be_written(name):
    """`check` prints an option as the configuration accepts it."""
    table, texts = SHOWN[name]
    option = table[name]
    assert [option.show(option.read(text, name)) for text in texts] == texts


def test_lists_and_factors_are_shown_as_text():
    """Paths and names separated by commas; a factor without needless digits."""
    read = {name: POOL[name].read for name in ("write", "env")}
    assert POOL["write"].show(read["write"](["/a", "/b"], "w")) == "/a, /b"
    assert POOL["write"].show(read["write"]([], "w")) == "nowhere"
    assert POOL["env"].show(read["env"](["A", "B_1"], "e")) == "A, B_1"
    growth = KIND["memory_growth"]
    assert [growth.show(growth.read(n, "g")) for n in (2, 1.5)] == ["2", "1.5"]
    for name, wrong in (("write", ["/a\0"]), ("write", [" "]), ("env", ["1A"])):
        with pytest.raises(ConfigError, match="expected"):
            read[name](wrong, name)


# -- jobs ------------------------------------------------------------------------------

FIELDS = {
    "priority": ([-32768, 32767], [-32769, 32768, 0.0, True]),
    "delay_ms": ([0, END_MS - NOW_MS], [-1, END_MS - NOW_MS + 1]),
    "run_at_ms": ([0, END_MS], [-1, END_MS + 1]),
    "expires_in_ms": ([1, END_MS - NOW_MS], [0, END_MS - NOW_MS + 1]),
    "key": (["k", "k" * 255], ["", "k" * 256, "\0", "\ud800", 1]),
    "unique": (["k", "k" * 255], ["", "k" * 256, "a\0", b"k"]),
    "tenant": (["k", "k" * 255], ["", "k" * 256]),
    "max_attempts": ([1, 2**31], [0, 2**31 + 1]),
    "memory_bytes": ([1, EIB], [0, EIB + 1]),
    "timeout_s": (
        [1e-9, 1, sys.float_info.max],
        [0, -1.0, float("inf"), float("nan"), 10**400, "1"],
    ),
}


@pytest.mark.parametrize(
    "fields",
    [
        *({"kind": wrong} for wrong in ("", "a b", 5, None, b"a", "a\n")),
        *({"pool": wrong} for wrong in ("", "a b", 5, None, b"a", "cpu\n")),
        *({"payload": wrong} for wrong in ("{}", bytearray(b"{}"), None, 1)),
    ],
    ids=str,
)
def test_a_jobs_name_pool_and_payload_are_checked(fields):
    """Records are not validated when they are created."""
    (field,) = fields
    given = {"kind": "a", "pool": "cpu", "payload": b"{}", **fields}
    with pytest.raises(UsageError, match=f"^{field}: expected"):
        validation.check_new_jobs([NewJob(**given)], NOW_MS)


@pytest.mark.parametrize("field", FIELDS)
def test_the_fields_of_a_new_job_are_checked(field):
    """What every database can store; the error names the field."""
    good, bad = FIELDS[field]
    for value in good:
        validation.check_new_jobs([job(**{field: value})], NOW_MS)
    for value in bad:
        with pytest.raises(UsageError, match=f"^{field}: expected"):
            validation.check_new_jobs([job(**{field: value})], NOW_MS)
        with pytest.raises(UsageError, match=f"^job 1 of 2: {field}: expected"):
            validation.check_new_jobs([job(), job(**{field: value})], NOW_MS)


@pytest.mark.parametrize("number", [1, 2, 1001])
def test_jobs_that_are_alike_are_checked_once(number):
    """Their payloads may differ; a fault in one is a fault in all."""
    jobs = [job(tenant="a\0")] * number
    with pytest.raises(UsageError, match="tenant: expected"):
        validation.check_new_jobs(jobs, NOW_MS)
    payloads = [NewJob(kind="a", pool="cpu", payload=b"%d" % n) for n in range(number)]
    validation.check_new_jobs(payloads, NOW_MS)


@pytest.mark.parametrize(
    ("field", "good", "bad"), [("priority", 1, True), ("delay_ms", 0, 0.0)]
)
def test_a_job_that_only_compares_equal_is_checked(field, good, bad):
    """True equals 1, and is refused."""
    with pytest.raises(UsageError, match=f"^job 1 of 2: {field}: expected"):
        validation.check_new_jobs([job(**{field: good}), job(**{field: bad})], NOW_MS)


def test_every_payload_is_checked():
    """No other field differs."""
    other = NewJob(kind="a", pool="cpu", payload=bytearray(b"{}"))
    with pytest.raises(UsageError, match=r"^job 1 of 2: payload: expected"):
        validation.check_new_jobs([job(), other], NOW_MS)


def job(**fields):
    return NewJob(kind="a", pool="cpu", payload=b"{}", **fields)


def test_without_a_clock_the_machines_own_decides_what_is_too_late():
    """A delay beyond the year 9999 is refused all the same."""
    validation.check_new_jobs([job(delay_ms=10**12)], None)
    with pytest.raises(UsageError, match="before the year 10000"):
        validation.check_new_jobs([job(delay_ms=END_MS - 1_600_000_000_000)], None)


def test_ids_are_bounded_by_their_column():
    """From 1 to 2^63 - 1."""
    ids = (-1, 0, 1, 2**63 - 1, 2**63)
    found = [validation.is_id(one) for one in ids]
    assert found == [False, False, True, True, False]


FITTED = {
    validation.fit_memory_bytes: [(-1, 0), (0, 0), (7, 7), (EIB, EIB), (EIB + 1, EIB)],
    validation.fit_code: [
        (-(2**31), -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (2**31 - 1, 2**31 - 1),
        (2**31, 2**31 - 1),
    ],
    validation.fit_delay_ms: [(-1, 0), (5, 5), (END_MS, END_MS), (END_MS + 1, END_MS)],
    validation.fit_duration_s: [
        (-0.5, 0.0),
        (2, 2.0),
        (END_MS / 1000, END_MS / 1000),
        (END_MS / 1000 + 1, END_MS / 1000),
        (float("inf"), END_MS / 1000),
        (float("-inf"), 0.0),
    ],
}


@pytest.mark.parametrize("fit", FITTED, ids=lambda fit: fit.__name__)
def test_observed_figures_are_clamped(fit):
    """A figure must not keep a settlement from being written."""
    assert [fit(value) for value, _ in FITTED[fit]] == [to for _, to in FITTED[fit]]
    nothing = 0 if fit is validation.fit_delay_ms else None
    assert fit(float("nan")) == fit(None) == nothing
