"""Jobs that have told a secret wherever a job can."""

import msgspec

from jobpool.core.jobs.job import Evidence, JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from support.store.storing import ended, lease_one, new_job, started, succeeded

SECRET = "4111-1111-1111-1111"
TELLING = Evidence(
    reason=f"refused {SECRET}",
    error_class=f"Refused_{SECRET}",
    error=f"card {SECRET}",
    traceback=f"File pay.py: card={SECRET!r}",
    output=f"paying with {SECRET}",
    stack=f"pay({SECRET!r})",
)


def secret_job(**options):
    """A job each of whose texts is the secret."""
    given = {
        "payload": f'{{"card":"{SECRET}"}}'.encode(),
        "key": f"key {SECRET}",
        "unique": f"unique {SECRET}",
        "tenant": f"tenant {SECRET}",
    }
    return new_job(**(given | options))


def lived(store, state=JobState.SUCCEEDED, **options):
    """Return the id of a job that has told its secret wherever a job can."""
    (made,) = store.enqueue([secret_job(**options)])
    if state is JobState.CANCELED:
        store.cancel([made.id])
        return made.id
    failing = ended(lease_one(store), evidence=TELLING)
    store.settle([msgspec.structs.replace(failing, delay_ms=0)])
    granted = lease_one(store)
    store.begin_attempts([started(granted, "cpu/0")])
    text = f'"{SECRET}"'.encode()
    store.record(
        [Progress(granted.id, granted.token, text, text, 2**20, SECRET.encode())]
    )
    if state is JobState.SUCCEEDED:
        end = succeeded(granted, result=text, output=SECRET)
        store.settle([msgspec.structs.replace(end, keeps_output=True)])
    else:
        crashed = ended(granted, Outcome.CRASHED, evidence=TELLING)
        store.settle([msgspec.structs.replace(crashed, state=state, delay_ms=0)])
    assert store.get(made.id).state is state
    return made.id
