"""A headless Chromium that is asked over a pipe what a page says, loads and draws. Needs no package.

Source: https://chromedevtools.github.io/devtools-protocol; with `--remote-debugging-pipe` the browser reads from
descriptor 3 and answers on 4, and a NUL ends each message.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_LAUNCH = """
import fcntl, os, sys
spare = [fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3]]
for number, descriptor in enumerate(spare, 3):
    os.dup2(descriptor, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """Give the path of a Chromium or Chrome, None where there is none."""
    named = os.environ.get("COMPRESSOR_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Page:
    """A page that is open, and what was heard of it: what it said on its console, and what it asked the network for."""

    browser: Browser
    session: str
    events: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def call(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        """Call a method of the protocol."""
        return self.browser.call(method, parameters, self)

    def value(self, script: str) -> Any:
        """Give what an expression, or a promise that it gives, evaluates to."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def show(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Open a file in a window of this width, and wait until each figure is drawn or given up."""
        self.look(width, dark=dark)
        self.call("Page.navigate", url=path.as_uri())
        ends = time.monotonic() + LONGEST_S
        while not self.value("document.readyState === 'complete' && !document.querySelector('.plot > img[hidden]')"):
            assert time.monotonic() < ends, "the figures were not drawn in time"

    def look(self, width: int, *, dark: bool = False) -> None:
        """Set the width of the window, and whether dark is preferred."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def heard(self, event: str) -> None:
        """Wait until something has happened since the page was opened."""
        ends = time.monotonic() + LONGEST_S
        while event not in self.events:
            assert time.monotonic() < ends, f"{event} did not happen in time"
            self.call("Page.getLayoutMetrics")

    def photograph(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def hear(self, method: str, parameters: Mapping[str, Any]) -> None:
        """Keep what the page said or asked for."""
        self.events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.said.append(
                f"{parameters['type']}: {[a.get('value', a.get('description')) for a in parameters['args']]}"
            )
        elif method == "Runtime.exceptionThrown":
            self.said.append(f"exception: {parameters['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.said.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(parameters["request"]["url"])


class Browser:
    """A browser that runs, and what it is asked and answers."""

    def __init__(self, ask: int, answers: int) -> None:
        self._ask, self._answers = ask, answers
        self._numbers = itertools.count(1)
        self._read = b""
        self._pages: dict[str, Page] = {}

    def page(self) -> Page:
        """Open an empty page."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        return page

    def call(self, method: str, parameters: Mapping[str, Any], page: Page | None = None) -> Mapping[str, Any]:
        """Call a method, and hear what is said until it is answered."""
        number = next(self._numbers)
        session = {"sessionId": page.session} if page else {}
        asked = json.dumps({"id": number, "method": method, "params": parameters, **session}).encode() + b"\0"
        while asked:
            asked = asked[os.write(self._ask, asked) :]
        while True:
            message = self._message()
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])
            if (heard := self._pages.get(message.get("sessionId", ""))) and "method" in message:
                heard.hear(message["method"], message["params"])

    def _message(self) -> Mapping[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], LONGEST_S)
            assert ready, "Chromium did not answer"
            more = os.read(self._answers, 2**20)
            assert more, "Chromium ended"
            self._read += more
        first, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(first))


@contextlib.contextmanager
def browser(program: str, folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile in a folder, and end it."""
    asked, ask = os.pipe()
    answers, answer = os.pipe()
    words = [program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    running = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(asked), str(answer), *words],
        pass_fds=(asked, answer),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(asked)
    os.close(answer)
    try:
        yield Browser(ask, answers)
    finally:
        with contextlib.suppress(OSError):
            os.write(ask, b'{"id":0,"method":"Browser.close"}\0')
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        os.close(ask)
        os.close(answers)
