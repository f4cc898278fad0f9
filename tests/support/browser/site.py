"""A dashboard that listens, in a thread of the test's own process."""

import faulthandler
import socket
import sys
import threading
from contextlib import closing, contextmanager
from functools import partial

import httpx2
import uvicorn

from jobpool.dashboard.app import Dashboard
from jobpool.store.opening import open_store
from support.browsing import Known
from support.waiting import wait_until

PATIENCE_S = 30.0
CLOSE_S = 5
"""As a real one: a connection that stays open does not keep it from its end."""


class Site:
    """A dashboard that listens.

    Attributes:
        url: where, without a slash at its end.
        access: who asks: a test may let somebody else.
        path: of its store.
    """

    def __init__(self, url, access, path):
        self.url = url
        self.access = access
        self.path = path
        self._client = httpx2.Client(timeout=PATIENCE_S)

    def close(self):
        """Let go of the connections to it."""
        self._client.close()

    @contextmanager
    def asked_by(self, role):
        """Let somebody with a role ask; None: somebody who is not known."""
        before, self.access.role = self.access.role, role
        try:
            yield
        finally:
            self.access.role = before

    def get(self, path):
        """Return the answer to a request for a path, as a program gets it."""
        return self._client.get(self.url + path)

    @contextmanager
    def opened(self):
        """Yield another store object on its store."""
        store = open_store(f"sqlite:///{self.path}", create=False)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def served(path):
    """Yield the site of a store's file; an admin asks."""
    opener = partial(open_store, f"sqlite:///{path}", create=False)
    access = Known()
    application = Dashboard(
        access,
        reader=partial(opener, reader=True),
        writer=opener,
        store_url="sqlite:////srv/shop.db",
        hosts={"127.0.0.1"},
        deadline_s=PATIENCE_S,
    )
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        # A client of ours must not ask just when an idle connection is closed.
        timeout_keep_alive=600,
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            wait_until(lambda: server.started, PATIENCE_S, "the dashboard answers")
            with closing(Site(f"http://127.0.0.1:{port}", access, path)) as site:
                yield site
        finally:
            application.end()
            server.should_exit = True
            thread.join(PATIENCE_S)
            if thread.is_alive():  # the end of a session is no test, but takes its time
                faulthandler.dump_traceback(file=sys.__stderr__)
            application.close()
