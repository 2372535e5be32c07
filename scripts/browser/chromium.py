"""Headless Chromium, for scripts that look at pages: started, spoken to, and ended."""
import json
import os
import shutil
import subprocess
import tempfile


def find():
    """Its path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class BrowserError(Exception):
    """Chromium refused a call, a script threw, or Chromium ended."""


class Browser:
    """One page, spoken to through two pipes (--remote-debugging-pipe): messages of JSON that end with a zero byte.

    `events` has what Chromium reported, such as requests and lines of the console, in order.
    """

    def __init__(self, program):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

        def as_3_and_4():
            first, second = os.dup(to_read), os.dup(to_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}"], pass_fds=(3, 4, to_read, to_write), preexec_fn=as_3_and_4,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Network", "Log", "Runtime", "Performance"):
            self.call(part + ".enable")
        self.events.clear()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.session = None
        try:
            if kind is None:
                self.call("Browser.close")
            else:
                self.process.kill()
            self.process.wait(timeout=20)
        finally:
            os.close(self.read_end)
            os.close(self.write_end)
            self.profile.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise BrowserError("Chromium ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        """A method of the DevTools protocol, in the page; its result."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        sent = memoryview(json.dumps(request).encode() + b"\0")
        while sent:
            sent = sent[os.write(self.write_end, sent):]
        while True:
            m = self.message()
            if m.get("id") == self.number:
                if "error" in m:
                    raise BrowserError(f"{method}: {m['error']}")
                return m["result"]
            self.events.append(m)

    def open(self, url):
        """Goes there, and waits until it is loaded."""
        before = len(self.events)
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events[before:]):
            self.events.append(self.message())

    def value(self, script):
        """What the script comes to, if a promise then when it is kept."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{script[:200]}: {result['exceptionDetails']}")
        return result["result"].get("value")
