"""Chromium: from PATH, or from Debian's package, with fonts of its own.

Playwright drives it, and brings no browser: `pip install` fetches the driver alone.
"""

import os
import shutil
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from playwright.sync_api import sync_playwright

from support.debian import unpacked

ON_PATH = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FONTS = ("fonts-inter", "fonts-jetbrains-mono")
"""Every machine shows the same letters."""
FONTS_CONF = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{root}/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{root}/fontconfig</cachedir>
  <alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias>
    <family>ui-monospace</family>
    <prefer><family>JetBrains Mono</family></prefer>
  </alias>
  <alias>
    <family>monospace</family>
    <prefer><family>JetBrains Mono</family></prefer>
  </alias>
</fontconfig>
"""


@contextmanager
def browser():
    """Start a browser; it ends with the block, and so do its pages."""
    executable, env = program()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=executable, env=env, args=["--no-sandbox"]
        )
        try:
            yield found
        finally:
            found.close()


@cache
def program():
    """Return where the browser is, and its environment; fetch it if it is nowhere."""
    found = next(filter(None, map(shutil.which, ON_PATH)), None)
    if found:
        root = unpacked("fonts", *FONTS)
    else:
        root = unpacked("chromium", "chromium-headless-shell", *FONTS)
        found = str(root / "usr/lib/chromium/chromium-headless-shell")
    conf = root / "fonts.conf"
    # Another worker's browser may be reading it: it is never there by halves.
    with tempfile.NamedTemporaryFile("w", dir=root, delete=False) as whole:
        whole.write(FONTS_CONF.format(root=root))
    Path(whole.name).replace(conf)
    # Also for what was fetched with it; a browser from PATH has fetched none.
    libraries = sorted({str(one.parent) for one in root.rglob("*.so*")})
    extra = {"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {}
    return found, {**os.environ, **extra, "FONTCONFIG_FILE": str(conf)}
