"""Logging in handlers says which attempt a line is of, without a word of theirs."""

import json

import pytest

from support.site.supervising import Site

APP = """
import logging, logging.config, sys

FORMAT = "%(job_id)s %(job_kind)s %(job_attempt)s %(trace_id)s %(message)s"
logging.basicConfig(format=FORMAT, level="INFO", stream=sys.stdout)
log = logging.getLogger("shop")


@jobs.on_child_start
def begin():
    log.info("between attempts")


@jobs.job("cpu", kind="shop.say", max_attempts=2, retry={"Exception": ["1ms"]})
def say(text: str) -> None:
    log.info(text)
    worker = threading.Thread(target=log.info, args=("in a thread",))
    worker.start()
    worker.join()
    log.info("its own", extra={"job_kind": "mine"})
    raise RuntimeError("so that its output is kept")


@jobs.job("io", kind="shop.struct", max_attempts=1)
def struct() -> None:
    import structlog.contextvars

    print("bound", json.dumps(structlog.contextvars.get_contextvars()))
    raise RuntimeError("likewise")
"""
STRUCTLOG = '''
"""Stands for structlog, as far as it is used here: context variables by name."""
import contextvars, sys, types

_bound = contextvars.ContextVar("bound", default={})
module = types.ModuleType("structlog.contextvars")
module.bind_contextvars = lambda **names: _bound.set({**_bound.get(), **names})
module.unbind_contextvars = lambda *names: _bound.set(
    {name: value for name, value in _bound.get().items() if name not in names}
)
module.get_contextvars = lambda: dict(_bound.get())
parent = types.ModuleType("structlog")
parent.contextvars = module
sys.modules |= {"structlog": parent, "structlog.contextvars": module}
'''
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("site"), STRUCTLOG + APP) as site:
        site.start("cpu=1,io=1")
        yield site


def lines_of(site, job_id):
    job = site.finish(job_id)
    assert job.state == "dead", job.reason
    return [one.output.splitlines() for one in site.store.attempts(job_id)]


def test_records_name_job_kind_attempt_and_trace(site):
    """Each attempt its own; in the handler's threads as well."""
    job_id = site.add("shop.say", {"text": "hello"}, trace=TRACE)
    assert lines_of(site, job_id) == [
        [
            f"{job_id} shop.say {attempt} {'a' * 32} hello",
            f"{job_id} shop.say {attempt} {'a' * 32} in a thread",
            f"{job_id} mine {attempt} {'a' * 32} its own",
        ]
        for attempt in (1, 2)
    ]


def test_the_next_job_of_a_child_has_its_own_name(site):
    first, second = site.add_many("shop.say", [{"text": "a"}, {"text": "b"}])
    assert lines_of(site, second)[0][0] == f"{second} shop.say 1 None b"
    assert lines_of(site, first)[0][0] == f"{first} shop.say 1 None a"


def test_structlog_s_context_names_them_too(site):
    for trace in (TRACE, None):
        job_id = site.add("shop.struct", pool="io", trace=trace)
        ((line,),) = lines_of(site, job_id)
        assert json.loads(line.removeprefix("bound ")) == {
            "job_id": job_id,
            "job_kind": "shop.struct",
            "job_attempt": 1,
            **({"trace_id": "a" * 32} if trace else {}),
        }
