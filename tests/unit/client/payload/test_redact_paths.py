"""``redact=``: what it takes, and that a slip is seen before it shows a secret."""

from dataclasses import dataclass

import msgspec
import pytest

from jobpool import ConfigError, JobPool
from jobpool.core.application.redaction import redaction_in


@dataclass
class Bank:
    iban: str


@dataclass
class Customer:
    name: str
    banks: list[Bank]
    home: Bank | None = None


def spec_of(redact, function=None):
    jobs = JobPool()

    def charge(card, customer: Customer, extra: dict, meta: dict[str, Bank], n: int):
        del card, customer, extra, meta, n

    return jobs.job("io", kind="k", aliases=["old"], redact=redact)(
        function or charge
    ).spec


def test_paths_are_published_with_the_kind():
    """And with its aliases; without any, nothing is said."""
    redact = [
        *("card", "card.deep", "customer.banks.iban", "customer.home.iban"),
        *("extra.any.thing", "meta.who.iban", "customer", "n"),
    ]
    said = redaction_in(spec_of(redact).schema)
    assert (said.paths, said.aliases) == (tuple(redact), ("old",))
    assert b"redact" not in spec_of([]).schema

    def open_ended(*cards, **more):
        del cards, more

    spec_of(["cards", "whatever"], open_ended)


@pytest.mark.parametrize(
    "path", ["crad", "customer.nam", "customer.banks.ibna", "meta.who.x", "n.deep"]
)
def test_a_path_that_leads_nowhere_is_refused(path):
    """It would hide nothing, and nobody would know."""
    with pytest.raises(ConfigError, match=rf"redact: '{path}' is not among .*card"):
        spec_of([path])


@pytest.mark.parametrize(
    "mapping", [dict[str, Bank], dict[str, list[Bank]], dict[str, Bank | None]]
)
def test_a_path_does_not_lead_through_a_mapping(mapping):
    """``banks.iban`` would be what the mapping has under the key iban."""

    def charge(banks):
        del banks

    charge.__annotations__["banks"] = mapping
    with pytest.raises(ConfigError, match="not through mappings"):
        spec_of(["banks.iban"], charge)
    spec_of(["banks", "banks.acme.iban", "banks.acme"], charge)


@pytest.mark.parametrize(
    ("redact", "words"),
    [
        ("card", r"write \['card'\]"),
        (["a..b"], "separated by dots"),
        ([""], "separated by dots"),
        ([7], "separated by dots"),
        (7, "got int"),
        ([f"a{n}" for n in range(101)], "at most 100"),
    ],
)
def test_what_is_no_list_of_paths_is_refused(redact, words):
    """At the decorator."""
    with pytest.raises(ConfigError, match=words):
        JobPool().job("io", redact=redact)


def test_texts_of_a_jobs_secrets_are_for_its_child():
    """Also by an alias; what cannot be read has none."""
    jobs = JobPool()

    @jobs.job("io", kind="k", aliases=["old"], redact=["card"])
    def charge(card: str, n: int):
        del card, n

    payload = msgspec.json.encode({"card": "4711 0815", "n": 4711})
    for kind in ("k", "old"):
        assert list(jobs.redacted_texts(kind, payload)) == ["4711 0815"]
    told = msgspec.json.encode({"job": {"kind": "k", "payload": payload}})
    assert list(jobs.redacted_texts("jobpool:on_dead", told)) == ["4711 0815"]
    for kind, other in (("k", b"{"), ("k", b"7"), ("x", payload)):
        assert list(jobs.redacted_texts(kind, other)) == []
