"""Chromium without a window, driven as by a user: keys, clicks, downloads, pictures (DevTools protocol over a pipe)."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "End": (35, ""), "Home": (36, "")}
KEYS |= {f"Arrow{side}": (code, "") for side, code in (("Left", 37), ("Up", 38), ("Right", 39), ("Down", 40))}
AS_3_AND_4 = "import os, sys; [os.dup2(int(sys.argv[i - 2]), i) for i in (3, 4)]; os.execvp(sys.argv[3], sys.argv[3:])"
"""Chromium reads commands from file descriptor 3 and answers on 4."""


class Browser:
    """One page in a browser of its own."""

    def __init__(self, folder: Path, page: Path, width: int = 1200, height: int = 900, *, before: str = "") -> None:
        """Open a page.

        Args:
            folder: An empty folder for the profile and the downloads.
            page: An HTML file.
            width: Of the window, in pixels.
            height: Of the window.
            before: A script that runs before the page's own.
        """
        self.downloads = folder / "downloads"
        self.downloads.mkdir(parents=True)
        to_read, self.to_write = os.pipe()
        self.to_answer, to_say = os.pipe()
        command = [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},{height}", "--remote-debugging-pipe",
        ]  # fmt: skip
        ends = [sys.executable, "-c", AS_3_AND_4, str(to_read), str(to_say), *command]
        self.process = subprocess.Popen(ends, pass_fds=(to_read, to_say), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_say)
        self.unread, self.count, self.session = b"", 0, ""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        begun = time.perf_counter()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.evaluate("document.readyState") != "complete":
            time.sleep(0.01)
        self.loading = time.perf_counter() - begun

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser something and wait for its answer."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": parameters}
        if self.session and not method.startswith("Browser."):
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.unread:
                self.unread += os.read(self.to_answer, 1 << 20) or self._died()
            line, self.unread = self.unread.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"])[:500])
            if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
                self.errors.append(answer["params"]["entry"]["text"])
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _died(self) -> bytes:
        raise RuntimeError("Chromium ended.")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def click(self, selector: str, index: int = 0, times: int = 1) -> None:
        """Press the mouse in the middle of an element, wherever it is on the page."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{index}];"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click_at(*box, times=times)

    def click_at(self, x: float, y: float, times: int = 1) -> None:
        """Press the mouse at a point of the window."""
        self.move(x, y)
        for number in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=number)

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, *keys: str) -> None:
        """Press keys by their names."""
        for key in keys:
            code, text = KEYS[key]
            shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def texts(self, selector: str) -> list[str]:
        """What a user reads in each element."""
        return list(self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)"))

    def look(self, **media: str) -> None:
        """Show the page as in the dark, or in print.

        Args:
            **media: Media features, such as ``prefers-color-scheme``; ``media="print"``.
        """
        kind = media.pop("media", "")
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def resize(self, width: int, height: int) -> None:
        """Change the window's size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Save what is seen, or the whole page, as a PNG."""
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))

    def print(self, path: Path) -> None:
        """Save the page as a PDF."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def downloaded(self, name: str, seconds: float = 20.0) -> Path:
        """Wait for a file."""
        path, end = self.downloads / name, time.monotonic() + seconds
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{name} was not downloaded; there is {sorted(self.downloads.iterdir())}.")
            time.sleep(0.02)
        return path

    def close(self) -> None:
        """End the browser."""
        self.process.terminate()
        self.process.wait(20)
        os.close(self.to_write)
        os.close(self.to_answer)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
