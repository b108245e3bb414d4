"""A real Chromium without a window, driven by its DevTools protocol."""

import base64
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",  # which does not start for root; the pages are our own
    "--disable-gpu",
    "--disable-background-networking",
    "--hide-scrollbars",
)
QT = """
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

application = QApplication([])
view = QWebEngineView()
view.setUrl("about:blank")
view.show()
application.exec()
"""
"""Starts the Chromium of Qt WebEngine, a package of pip's."""

SECONDS = 60
"""The most that anything may take."""


@contextlib.contextmanager
def browser():
    """The one `Page` of a new Chromium: the system's if there is one, or else Qt's."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    flags = [*FLAGS, f"--remote-debugging-port={port}"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        environment = {**os.environ, "TMPDIR": profile}
        if found:
            command = [found, *flags, "--headless", f"--user-data-dir={profile}", "about:blank"]
        else:
            command = [sys.executable, "-c", QT]
            environment |= {
                "HOME": profile,
                "QT_QPA_PLATFORM": "offscreen",
                "QTWEBENGINE_CHROMIUM_FLAGS": " ".join(flags),
            }
        log = Path(profile) / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        try:
            with contextlib.closing(Page(_address_of_page(process, port, log))) as page:
                yield page
        finally:
            process.terminate()
            process.wait(SECONDS)


def _address_of_page(process, port, log):
    """Asks a starting browser for its page until it answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), direct.open(f"http://127.0.0.1:{port}/json") as answer:
            for target in json.load(answer):
                if target["type"] == "page":
                    return target["webSocketDebuggerUrl"]
        time.sleep(0.05)
    said = log.read_text(errors="replace")
    missing = re.search(r"(Import|ModuleNotFound)Error: .*", said)
    if missing:  # the package, or a library of the system that it needs
        pytest.skip(f"set CHROMIUM or pip install pyside6-webengine ({missing[0]})")
    raise RuntimeError(f"Chromium did not start: {said[-2000:]}")


class Page:
    """A page, what it asked for and what went wrong in it."""

    def __init__(self, address):
        import websocket

        self._socket = websocket.create_connection(address, timeout=SECONDS, suppress_origin=True)
        self._numbers = itertools.count(1)
        self._events = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method, **arguments):
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": arguments}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._events.append(answer)

    def close(self):
        self._socket.close()

    def events(self, method):
        """The parameters of all events of a kind since the page was opened."""
        return [event["params"] for event in self._events if event.get("method") == method]

    def open(self, path, address=""):
        """Opens an HTML file, with what stands behind # in its address, as new."""
        self.call("Page.navigate", url="about:blank")
        self._events.clear()
        self.call("Page.navigate", url=f"{Path(path).as_uri()}#{address}")
        until = time.monotonic() + SECONDS
        while self.evaluate("location.protocol + document.readyState") != "file:complete":
            assert time.monotonic() < until
            time.sleep(0.01)

    def size(self, width, height, mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def drawn(self):
        """Waits until what was asked for has been drawn."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def box(self, expression):
        """left, top, right, bottom of an element in the window, in pixels."""
        return self.evaluate(
            f"(() => {{ const b = ({expression}).getBoundingClientRect();"
            " return [b.left, b.top, b.right, b.bottom]; })()"
        )

    def middle(self, expression):
        """x and y of the middle of an element."""
        left, top, right, bottom = self.box(expression)
        return (left + right) / 2, (top + bottom) / 2

    def point_at(self, x, y):
        """Moves the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.drawn()

    def click(self, expression):
        """Clicks in the middle of an element."""
        x, y = self.middle(expression)
        self.point_at(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.drawn()

    def press(self, key, code, text=""):
        """Presses a key: its name, its Windows virtual key code and what it types."""
        names = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **names)
        self.call("Input.dispatchKeyEvent", type="keyUp", **names)
        self.drawn()

    def screenshot(self):
        """Returns the window's picture, [height, width, 3]."""
        from PIL import Image

        data = self.call("Page.captureScreenshot", format="png")["data"]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), int)
