"""Opens pages in a browser, and listens to what it complains about."""

from contextlib import contextmanager
from urllib.parse import urlsplit

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}
PATIENCE_MS = 60_000
"""More than a page may take to be answered, which is half as long."""


class Visit:
    """Pages that one test looks at.

    Args:
        browser: Playwright's.
        site: the dashboard.
    """

    def __init__(self, browser, site):
        self._browser = browser
        self._site = site
        self._contexts = []
        self.complaints = []
        """What went wrong: a script, the policy, a request that left the dashboard."""
        self.asked = []
        """What was asked of the server: method and path."""

    def __call__(self, path, *, width="desk", dark=False, scripts=True):
        """Open a page; return it once it is loaded.

        Args:
            path: its address.
            width: ``desk`` or ``phone``.
            dark: with the reader's system in dark.
            scripts: run them.
        """
        context = self._browser.new_context(
            viewport=DESK if width == "desk" else PHONE,
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)
        page.goto(self._site.url + path, wait_until="load")
        return page

    def hold(self, page):
        """Have a page stay as it is, as while somebody presses a button of it.

        Else it shows itself anew soon after it was opened, and loses the focus.
        """
        page.evaluate("document.dispatchEvent(new Event('pointerdown'))")

    def close(self):
        """Close all pages."""
        for context in self._contexts:
            context.close()

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _on_dialog(self, dialog):
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request):
        to = urlsplit(request.url)
        if f"{to.scheme}://{to.netloc}" != self._site.url and to.scheme != "data":
            self.complaints.append(f"request to elsewhere: {request.url}")
        self.asked.append((request.method, to.path))


@contextmanager
def visiting(browser, site):
    """Yield a `Visit`; at its end, nothing may have gone wrong."""
    found = Visit(browser, site)
    try:
        yield found
    finally:
        found.close()
    assert found.complaints == []
