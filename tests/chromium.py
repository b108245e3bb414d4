"""A real Chromium without a window, driven by its DevTools protocol."""

import base64
import contextlib
import importlib.util
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

NAMES = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
NO_CHROMIUM = (
    f"no Chromium: set CHROMIUM, have one of {', '.join(NAMES)} on PATH, "
    "or pip install pyside6-webengine"
)
FLAGS = (
    "--no-sandbox",  # which does not start for root; the pages are our own
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SECONDS = 60
"""The most that anything may take."""


class NoChromium(Exception):
    """There is none, or pip's lacks a library of the system: the message says which."""


def command(profile):
    """The command that starts a Chromium, and its environment; None if there is none."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        flags = [*FLAGS, "--headless", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        return [found, *flags, "about:blank"], os.environ
    if importlib.util.find_spec("PySide6") and importlib.util.find_spec(
        "PySide6.QtWebEngineWidgets"
    ):
        environment = {
            "QT_QPA_PLATFORM": "offscreen",
            "QTWEBENGINE_REMOTE_DEBUGGING": f"127.0.0.1:{_free_port()}",
            "QTWEBENGINE_CHROMIUM_FLAGS": " ".join(FLAGS),
            "HOME": str(profile),
        }
        started = [sys.executable, str(Path(__file__).with_name("qt_chromium.py")), "about:blank"]
        return started, {**os.environ, **environment}
    return None


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def browser():
    """The one `Page` of a new Chromium, or `NoChromium`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        started = command(profile)
        if started is None:
            raise NoChromium(NO_CHROMIUM)
        arguments, environment = started
        log = Path(profile) / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                arguments,
                env={**environment, "TMPDIR": profile},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        try:
            with contextlib.closing(Page(_address_of_page(process, log))) as page:
                yield page
        finally:
            process.terminate()
            process.wait(SECONDS)


def _address_of_page(process, log):
    """Reads the page's debugging address from the line that the browser prints when it is ready."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        found = re.search(rb"DevTools listening on ws://([\d.:]+)/", log.read_bytes())
        if found:
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(f"http://{found[1].decode()}/json") as answer:
                pages = [target for target in json.load(answer) if target["type"] == "page"]
            if pages:
                return pages[0]["webSocketDebuggerUrl"]
        time.sleep(0.05)
    missing = re.search(r"ImportError: (lib.*)", log.read_text(errors="replace"))
    if missing:
        raise NoChromium(f"{NO_CHROMIUM}, which needs {missing[1]}")
    raise RuntimeError(f"Chromium did not start: {log.read_text(errors='replace')[-2000:]}")


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
        self.size(1280, 1000)

    def call(self, method, **arguments):
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": arguments}
        self._socket.send(json.dumps(message))
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
        self.call("Page.navigate", url=Path(path).as_uri() + (f"#{address}" if address else ""))
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def size(self, width, height, **metrics):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False} | metrics,
        )

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until an expression holds."""
        until = time.monotonic() + SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < until, f"never: {expression}"
            time.sleep(0.01)

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

    def press(self, key, code):
        """Presses a key: its name, and its Windows virtual key code."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code="Space" if key == " " else key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )
        self.drawn()

    def screenshot(self):
        """Returns the window's picture, [height, width, 3] uint8."""
        from PIL import Image

        data = self.call("Page.captureScreenshot", format="png")["data"]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
