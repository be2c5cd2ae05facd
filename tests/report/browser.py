"""A headless browser controlled over a pipe: Chromium's own protocol, which needs no further package."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# The browser reads from descriptor 3 and writes to descriptor 4.
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
SECONDS = 90


def browser_path():
    """Return the installed browser; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Seen:
    """A page as it was shown, with its external requests and its error messages."""

    browser: Browser
    session: str
    requests: list = field(default_factory=list)
    complaints: list = field(default_factory=list)
    target: str = ""

    def evaluate(self, expression):
        """Return the value of a JavaScript expression in the page."""
        asked = {"expression": expression, "returnByValue": True}
        return self.browser.call("Runtime.evaluate", asked, self.session)["result"].get("value")

    def view(self, width, height, dark=False, media="screen"):
        """Give the window another size, or colour scheme, without loading the page again."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.call("Emulation.setDeviceMetricsOverride", size, self.session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.call("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]}, self.session)

    def pdf(self):
        """Print the page on A4."""
        asked = {"printBackground": False, "paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self.browser.call("Page.printToPDF", asked, self.session)["data"])

    def picture(self, height=None, top=0):
        """Return a PNG of the page from `top`, `height` high or up to its end."""
        width, whole = self.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole, "scale": 1}
        asked = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        return base64.b64decode(self.browser.call("Page.captureScreenshot", asked, self.session)["data"])


class Browser:
    """A browser that is started once; `show` opens a file any number of times."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        ours, theirs = [], []
        for mine, other in (os.pipe()[::-1], os.pipe()):  # (write, read) to it, then (read, write) from it
            theirs.append(fcntl.fcntl(other, fcntl.F_DUPFD, 10))
            os.close(other)
            ours.append(mine)
        self._to, self._from = ours
        words = [sys.executable, "-c", START, *map(str, theirs), browser_path(), *OPTIONS]
        self._process = subprocess.Popen(
            [*words, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in theirs:
            os.close(descriptor)
        self._numbers, self._unread, self._pages = itertools.count(1), b"", {}
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def show(self, path: Path, width=1200, height=900, dark=False, media="screen", scripts=True) -> Seen:
        """Load a file in a window of that size, with or without scripts."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        seen = self._pages[session] = Seen(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", {}, session)
        seen.view(width, height, dark, media)
        self.call("Emulation.setScriptExecutionDisabled", {"value": not scripts}, session)
        self._loaded = False
        self.call("Page.navigate", {"url": path.resolve().as_uri()}, session)
        while not self._loaded:
            self._read()
        seen.requests = [url for url in seen.requests if url != path.resolve().as_uri()]
        seen.target = target
        return seen

    def close(self, seen: Seen):
        """Close a page that is no longer needed."""
        self.call("Target.closeTarget", {"targetId": seen.target})
        self._pages.pop(seen.session, None)

    def call(self, method, given=None, session=None):
        """Send one command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": given or {}} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _read(self):
        """Return the next message; events are recorded."""
        end = time.monotonic() + SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser has said nothing for {SECONDS} s"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._unread += more
        text, _, self._unread = self._unread.partition(b"\0")
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message):
        method, given = message.get("method"), message.get("params", {})
        seen = self._pages.get(message.get("sessionId"))
        if method == "Page.loadEventFired":
            self._loaded = True
        elif seen and method == "Network.requestWillBeSent":
            seen.requests.append(given["request"]["url"])
        elif seen and method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            seen.complaints.append(given)
