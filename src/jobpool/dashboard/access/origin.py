"""Whether a request that changes something was made by our own page.

A browser says on whose behalf it asks, in headers that no page can set. A program that
is no browser sends neither, and no cookie by itself either: it names its token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SAFE_METHODS = frozenset({"GET", "HEAD"})
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^\[\]:]+)(?::[0-9]*)?")


def name_asked(headers: Mapping[str, str]) -> str:
    """Return the name or the address that a browser has asked; "": it is none.

    Args:
        headers: of the request, as it was sent: a name with an underscore, which others
            take for none, is one to a browser.
    """
    found = _HOST.fullmatch(headers.get("host", "").lower())
    return "" if found is None else found[1].strip("[]")


def why_foreign(method: str, headers: Mapping[str, str]) -> str:
    """Return why a request is refused as another page's; "": it is ours.

    Args:
        method: of the request.
        headers: of the request, by names in lower case.
    """
    if method in SAFE_METHODS:
        return ""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return f"it was made by another page (Sec-Fetch-Site: {site})"
    origin = headers.get("origin")
    if origin is not None:
        host = headers.get("host", "")
        if origin.partition("://")[2].lower() != host.lower():
            return f"it was made by a page of {origin}, not of {host}"
        return ""
    if site is None and "authorization" not in headers:
        return "it does not say which page has made it (no Origin, no Sec-Fetch-Site)"
    return ""
