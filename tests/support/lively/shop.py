"""The shop: its kinds, quotas, tenants and hosts, and how its jobs usually fare."""

import json
from typing import NamedTuple

from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.store.records.runs import KindRecord, Run

MIB, GIB = 2**20, 2**30
POOLS = {"cpu": "2..8", "io": "16", "big": "1"}


class Kind(NamedTuple):
    """A kind, and what its jobs use."""

    name: str
    pool: str
    memory_bytes: int
    timeout_s: float
    peak_bytes: int
    """The median."""
    run_s: float
    """The median."""
    a_minute: float
    arguments: tuple[str, ...] = ("path",)
    needs: tuple[str, ...] = ()


KINDS = (
    Kind("img.thumbnail", "cpu", 256 * MIB, 30, 96 * MIB, 0.4, 14, ("path", "width")),
    Kind("pdf.render", "cpu", 512 * MIB, 60, 88 * MIB, 2.4, 4, ("invoice",)),
    Kind("search.index", "cpu", 384 * MIB, 120, 210 * MIB, 3.1, 3, ("sku",)),
    Kind(
        "stripe.charge", "io", 128 * MIB, 20, 46 * MIB, 0.8, 6, ("order",), ("stripe",)
    ),
    Kind("mail.send", "io", 128 * MIB, 20, 39 * MIB, 0.3, 7, ("to",), ("mailgun",)),
    Kind("feed.import", "io", 256 * MIB, 300, 120 * MIB, 9.0, 2, ("vendor",)),
    Kind("video.encode", "big", 3 * GIB, 3600, 1400 * MIB, 70.0, 0.5, ("path",)),
    Kind("report.nightly", "big", 2 * GIB, 1800, 840 * MIB, 50.0, 0.1, ("day",)),
)
OF_NAME = {kind.name: kind for kind in KINDS}
TENANTS = (
    *("acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "wonka"),
    *("cyberdyne", "tyrell", "soylent", "vandelay", "pied-piper", "massive-dynamic"),
)
QUOTAS = (
    Quota(name="stripe", rate=Rate(10, 1.0), burst=20, concurrency=8),
    Quota(
        name="mailgun",
        rate=Rate(600, 60.0),
        breaker=BreakerRule(failures=0.5, window_s=60.0, requests=20, pause_s=120.0),
    ),
    Quota(name="warehouse", concurrency=2, per="tenant"),
)
LIMITS = Limits(
    quotas=QUOTAS,
    tenants=(Tenant(name="*", concurrency=6), Tenant(name="acme", weight=4.0)),
)
RUNS = tuple(
    Run(
        id=f"00000000-0000-4000-8000-00000000000{n}",
        host=host,
        boot_id=f"boot-{host}",
        pid=pid,
        pid_namespace=1,
        version="0.32.0",
        pools=pools,
        application="shop.jobs:jobs",
        app_version=version,
        limits=LIMITS,
    )
    for n, (host, pid, pools, version) in enumerate(
        (
            ("web-1", 4711, {"cpu": "2..8", "io": "16"}, "8f2c1"),
            ("web-2", 1290, {"cpu": "2..8", "io": "16"}, "8f2c1"),
            ("batch-1", 803, {"big": "1"}, "71d0a"),
        )
    )
)


def schema_of(kind):
    """Return the JSON Schema of a kind's arguments."""
    types = {
        name: {"type": "integer" if name == "width" else "string"}
        for name in kind.arguments
    }
    schema = {"type": "object", "properties": types, "required": [*kind.arguments]}
    return json.dumps({**schema, "additionalProperties": False}).encode()


def records():
    """Return the kinds as a supervisor publishes them."""
    return [
        KindRecord(
            kind=kind.name,
            pool=kind.pool,
            schema=schema_of(kind),
            timeout_s=kind.timeout_s,
            memory_bytes=kind.memory_bytes,
            max_attempts=5,
            max_crashes=3,
            needs=tuple(map(Need, kind.needs)),
        )
        for kind in KINDS
    ]
