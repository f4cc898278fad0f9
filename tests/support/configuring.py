"""Settings built from flags, variables and files that are only texts."""

from jobpool.core.config.load import Machine, configure, read_sources
from jobpool.core.config.settings import GIB

HERE = "/srv/shop"
BIG = Machine(cores=4, memory_bytes=64 * GIB)


def build(flags=None, *, env=None, files=None, machine=BIG, has_jobs_file=True, **more):
    sources = read_sources(
        flags or {},
        env=env or {},
        directory=HERE,
        read_file=(files or {}).get,
        **more,
    )
    return configure(sources, machine=machine, has_jobs_file=has_jobs_file)


def toml(text, name="jobpool.toml"):
    return {f"{HERE}/{name}": text}


def pool(configuration, name):
    return next(p for p in configuration.settings.pools if p.name == name)
