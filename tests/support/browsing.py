"""The dashboard on a store in memory, asked as a browser asks; no server, no socket."""

from starlette.testclient import TestClient

from jobpool.core.clock import SystemClock
from jobpool.core.rules.admission import Admission
from jobpool.dashboard.access.access import Entrance
from jobpool.dashboard.app import Dashboard
from jobpool.operations.principal import Principal, Role
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore

HOST = "127.0.0.1:8300"
OURS = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
"""What a browser says of a form that one of our pages has sent."""
PATIENCE_S = 30.0
"""What a page waits for what it shows, unless a test is about that."""


class Known:
    """Access by somebody whom a test has chosen; None: nobody."""

    entrance = Entrance.ELSEWHERE
    cookie = ""

    def __init__(self, role=Role.ADMIN):
        self.role = role
        self.who = "ada"

    async def principal(self, request):
        if self.role is None:
            return None
        return Principal(who=self.who, role=self.role, origin="a test")

    def enter(self, key, request):
        return None

    def leave(self, request):
        pass


def memory_stores(folder):
    """Return what opens stores on one database in memory."""
    database = MemoryDatabase(str(folder))

    def opener():
        return MemoryStore(
            database,
            clock=SystemClock(),
            admission=Admission(),
            run_root=folder / "jobs.run",
        )

    return opener


class Browser:
    """Asks a dashboard for pages.

    Args:
        opener: opens the store.
        access: who asks; default: an admin.
        reader: opens it for pages; default: *opener*.
        more: as `Dashboard` takes it.
    """

    def __init__(self, opener, access=None, reader=None, **more):
        self.access = access or Known()
        self.dashboard = Dashboard(
            self.access,
            reader=reader or opener,
            writer=opener,
            store_url="sqlite:////srv/shop.db",
            **{"deadline_s": PATIENCE_S} | more,
        )
        self.client = TestClient(
            self.dashboard, base_url=f"http://{HOST}", follow_redirects=False
        )

    def get(self, path, **more):
        return self.client.get(path, **more)

    def post(self, path, fields=(), headers=None):
        """Send a form as a page of ours does."""
        return self.client.post(
            path, data=dict(fields), headers=OURS if headers is None else headers
        )

    def close(self):
        self.client.close()
        self.dashboard.close()
