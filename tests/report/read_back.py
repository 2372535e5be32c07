#!/usr/bin/env python3
"""Reads what firn-report has written, by Python's own modules, and compares it with the log.

  read_back.py page PAGE LOG...      structure, policy, escapes, contrast; every row of a table is a record
  read_back.py csv FOLDER LOG        every field of steps.csv and epochs.csv
  read_back.py events FILE LOG       checksums, messages, every scalar and every skipped step
  read_back.py tensorboard FILE LOG  the same through TensorBoard's own reader; exit 77 if it is not installed
Prints what is wrong; exit status 1 then.
"""
import base64
import csv
import hashlib
import html.parser
import json
import math
import pathlib
import re
import struct
import sys

FAULTS = []


def check(holds, what):
    if not holds:
        FAULTS.append(what)


def finite(text):
    """A number that f64 cannot hold makes a line unreadable."""
    if math.isinf(float(text)):
        raise ValueError(text)
    return float(text)


def records_of(log):
    """The records of the last run of a log, as a reader has to read them."""
    out = []
    for line in pathlib.Path(log).read_bytes().split(b"\n"):
        try:
            record = json.loads(line, parse_float=finite)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("record"), str):
            if record["record"] == "run":
                out = []
            out.append(record)
    return out


def visible(text, most=300):
    """As the page shows a text of the log: control bytes and what turns the direction as escapes, long ones cut."""
    out, size = [], 0
    for c in text:
        size += len(c.encode())
        if size > most:
            return "".join(out) + f"… ({len(text.encode())} bytes)"
        code = ord(c)
        hidden = (code < 0x20 or 0x7f <= code < 0xa0 or code in (0x61c, 0x200e, 0x200f, 0xfeff) or 0x2028 <= code <= 0x202e
                  or 0x2066 <= code <= 0x2069 or code & 0xfffe == 0xfffe)
        out.append((f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}") if hidden else c)
    return "".join(out)


def member(record, name):
    """The value at "measured/training_bytes_at_peak/weights": names below the last known one may hold slashes, and are as
    the page shows them."""
    for prefix in ("measured/training_bytes_at_peak/", "measured/by_owner/", "measured/", "metrics/", "train_losses/"):
        if name.startswith(prefix):
            for part in prefix[:-1].split("/"):
                record = record.get(part, {}) if isinstance(record, dict) else {}
            rest = name[len(prefix):]
            return next((v for n, v in record.items() if visible(n) == rest), None) if isinstance(record, dict) else None
    return record.get(name)


def number(value):
    """As a number; None if it is none or not finite."""
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if ok else None


# ---- The page ------------------------------------------------------------------------------------

VOID = {"meta", "input", "br", "img"}
TAGS = set("""html head img b br meta title style body script a header p h1 h2 h3 dl div dt dd small ul li nav main section figure figcaption i
  svg path g text details summary table caption thead tbody tr th td code pre em strong footer""".split())


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.sources = []
        self.tags, self.attributes, self.headings, self.tables, self.texts = {}, set(), [], [], []
        self.links, self.ids, self.figures, self.policy, self.raw = [], [], [], None, {}
        self.inside, self.lang, self.images = [], None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes.update(a)
        if "src" in a:
            self.sources.append(a["src"])
            check(tag == "img" and a.get("alt"), f"<{tag}> with a source, or an image without a text")
        if tag not in VOID:
            self.inside.append(tag)
        if tag == "html":
            self.lang = a.get("lang")
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy":
            self.policy = a["content"]
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if "id" in a:
            self.ids.append(a["id"])
        if "href" in a:
            self.links.append(a["href"])
        if tag == "svg":
            self.images.append(a)
        if tag == "figure":
            self.figures.append({"tables": 0})
        if tag == "table":
            self.tables.append({"kind": a.get("data-kind"), "run": a.get("data-run"), "names": [], "bodies": [], "caption": ""})
            if self.figures and "figure" in self.inside:
                self.figures[-1]["tables"] += 1
        table = self.tables[-1] if self.tables else None
        if tag == "th" and "data-name" in a:
            table["names"].append(a["data-name"])
        if tag == "tbody":
            table["bodies"].append({"run": a.get("data-run", table["run"]), "optimizer": a.get("data-optimizer", ""), "rows": []})
        if tag == "tr" and table["bodies"] and a.get("class") != "group":
            table["bodies"][-1]["rows"].append([])
        if tag in ("td", "th") and table["bodies"] and table["bodies"][-1]["rows"]:
            table["bodies"][-1]["rows"][-1].append({"v": a.get("data-v"), "text": "", "tag": tag})

    def handle_endtag(self, tag):
        if tag in self.inside:
            while self.inside.pop() != tag:
                pass

    def handle_data(self, data):
        here = self.inside[-1] if self.inside else ""
        if here in ("script", "style"):
            self.raw.setdefault(here, []).append(data)
            return
        self.texts.append(data)
        if here == "caption":
            self.tables[-1]["caption"] += data
        if here in ("td", "th") and self.tables[-1]["bodies"] and self.tables[-1]["bodies"][-1]["rows"]:
            row = self.tables[-1]["bodies"][-1]["rows"][-1]
            if row:
                row[-1]["text"] += data


def luminance(colour):
    """WCAG 2.1: relative luminance of #rgb or #rrggbb."""
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def check_colours(style):
    themes = [dict(re.findall(r"--([a-z]+\d?):(#[0-9a-f]+)", block)) for block in re.findall(r":root\{([^}]*)\}", style)]
    check(len(themes) == 3, f"{len(themes)} themes, not light, dark and print")
    for theme in themes:
        for text in ("ink", "muted", "link"):
            for ground in ("page", "soft"):
                ratio = contrast(theme[text], theme[ground])
                check(ratio >= 4.5, f"contrast of --{text} on --{ground} is {ratio:.2f}")
        for graphic in ["warn"] + [f"c{i}" for i in range(8)]:
            ratio = contrast(theme[graphic], theme["page"])
            check(ratio >= 3, f"contrast of --{graphic} is {ratio:.2f}")


def check_policy(page):
    check(page.tags.get("script") == 1 and page.tags.get("style") == 1, "not one script and one style")
    check(page.policy is not None, "no Content-Security-Policy")
    want = {}
    for tag in ("style", "script"):
        digest = hashlib.sha256("".join(page.raw.get(tag, [])).encode()).digest()
        want[tag + "-src"] = f"'sha256-{base64.b64encode(digest).decode()}'"
    rules = dict(r.strip().split(" ", 1) for r in (page.policy or "").split(";") if " " in r.strip())
    check(rules.get("default-src") == "'none'", "default-src is not 'none'")
    for name, hash_ in want.items():
        check(rules.get(name) == hash_, f"{name} is {rules.get(name)}, and the content's {hash_}")
    for source in page.sources:
        check(source.startswith("data:image/"), f"an image from {source[:80]}")
    for name in page.attributes:
        check(not name.startswith("on") and name not in ("style", "srcset", "action"), f"attribute {name}")
    check(set(page.tags) <= TAGS, f"tags {set(page.tags) - TAGS}")
    for link in page.links:
        check(link.startswith("#") and link[1:] in page.ids, f"link to {link}")
    check(len(set(page.ids)) == len(page.ids), "an id occurs twice")


def check_rows(page, runs):
    rows = 0
    for table in page.tables:
        check(table["caption"].strip() != "", "a table without a caption")
        if table["kind"] == "confusion":
            rows += check_confusion(table, runs[int(table["run"])])
            continue
        if table["kind"] is None:
            continue
        for body in table["bodies"]:
            by_key = {}
            for r in runs[int(body["run"])]:
                if r["record"] == table["kind"] and visible(r.get("optimizer", "")) == body["optimizer"]:
                    by_key.setdefault(number(member(r, table["names"][0])), []).append(r)
            for row in body["rows"]:
                check(len(row) == len(table["names"]), f"{table['caption']}: a row of {len(row)} cells")
                shown = [c["v"] if c["v"] is not None else c["text"].strip() for c in row]

                def equal(record):
                    for name, text in zip(table["names"], shown):
                        value = member(record, name)
                        if isinstance(value, str) or name in ("cause", "parameter"):
                            if visible(value or "", 240).strip() != text:
                                return False
                        elif (text == "–") != (number(value) is None) or (text != "–" and float(text) != number(value)):
                            return False
                    return True

                key = None if shown[0] == "–" else float(shown[0])
                check(any(equal(r) for r in by_key.get(key, [])), f"{table['caption']}: {shown} is no record")
                rows += 1
    return rows


def check_confusion(table, records):
    last = [r for r in records if "confusion" in r.get("details", {})][-1]["details"]["confusion"]
    shown = [[float(c["v"] or c["text"]) for c in row if c["tag"] == "td"] for row in table["bodies"][0]["rows"]]
    check(shown == last, "the confusion matrix is not that of the log")
    return len(shown)


def check_page(path, logs):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    page = Page(text)
    check(text.startswith("<!doctype html>"), "no doctype")
    check(page.lang == "en", "no language")
    own = "".join(page.raw.get("style", []) + page.raw.get("script", [])).replace("http://www.w3.org/2000/svg", "")
    check(not re.search(r"https?:|url\(|@import|fetch|XMLHttp|import\(|eval|innerHTML", own), "style or script go to the network")
    check(len(text.encode()) <= 400_000, f"{len(text.encode())} bytes")
    check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", text), "a control byte")
    check_policy(page)
    check_colours("".join(page.raw.get("style", [])))
    check(page.headings.count(1) == 1 and page.headings[0] == 1, "not one h1 at first")
    for a, b in zip(page.headings, page.headings[1:]):
        check(b <= a + 1, f"heading {b} after {a}")
    for image in page.images:
        check(image.get("role") == "img" and image.get("aria-label", "").strip(), "a drawing without a description")
    for figure in page.figures:
        check(figure["tables"] >= 1, "a chart without a table")
    check(len(page.images) == len(page.figures), "a drawing outside of a figure")
    rows = check_rows(page, [records_of(log) for log in logs])
    print(f"{len(text.encode())} bytes, {len(page.figures)} charts, {rows} rows")


# ---- CSV -----------------------------------------------------------------------------------------

def check_csv(folder, log):
    records = records_of(log)
    for file, kind in (("steps.csv", "step"), ("epochs.csv", "epoch")):
        own = [r for r in records if r["record"] == kind]
        with open(pathlib.Path(folder) / file, newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        check(len(rows) == len(own), f"{file}: {len(rows)} rows of {len(own)} records")
        for row, record in zip(rows, own):
            for name, text in row.items():
                value = member(record, name)
                if value is None and name in record.get("measured", {}):
                    value = record["measured"][name]
                group, _, rest = name.partition(".")
                if value is None and rest:
                    value = (record.get("measured", {}) if group == "training_bytes_at_peak" else record).get(group, {}).get(rest)
                if isinstance(value, bool):
                    same = text == (str(value).lower() if kind == "step" else "")
                elif isinstance(value, (int, float)):
                    same = text != "" and float(text) == float(value)
                else:
                    same = text == (value or "")
                check(same, f"{file}: {name} is {text!r}, in the record {value!r}")
    print(f"{len(records)} records")


# ---- Events --------------------------------------------------------------------------------------

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """(number, value) of a protobuf message: integers, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + length]
        at += length
    check(at == len(message), "a message ends within a field")


def summary(message):
    """(tag, value): a float, or a text."""
    tag, value, plugin = "", None, None
    for field, data in fields(message):
        if field == 1:
            tag = data.decode()
        if field == 2:
            value = struct.unpack("<f", data)[0]
        if field == 8:
            tensor = dict(fields(data))
            check(tensor[1] == 7, "a tensor that is no text")
            value = tensor[8].decode()
        if field == 9:
            plugin = dict(fields(dict(fields(data))[1]))[1]
    check((plugin == b"text") == isinstance(value, str), f"{tag}: the plugin is {plugin}")
    return tag, value


def read_events(path):
    data, at, out = pathlib.Path(path).read_bytes(), 0, []
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        check(struct.unpack_from("<I", data, at + 8)[0] == crc32c(data[at:at + 8]), "checksum of a length")
        message = data[at + 12:at + 12 + length]
        check(struct.unpack_from("<I", data, at + 12 + length)[0] == crc32c(message), "checksum of an event")
        at += length + 16
        wall, step, values, version = None, 0, [], None
        for field, value in fields(message):
            if field == 1:
                wall = struct.unpack("<d", value)[0]
            elif field == 2:
                step = value
            elif field == 3:
                version = value
            elif field == 5:
                values += [summary(v) for f, v in fields(value) if f == 1]
        check(bool(out) or version == b"brain.Event:2", "the first event has no version")
        out.append((wall, step, values))
    return out[1:]


def read_tensorboard(path):
    try:
        from tensorboard.backend.event_processing import event_file_loader
        from tensorboard.util import tensor_util
    except ImportError:
        sys.exit(77)
    out = []
    for event in event_file_loader.EventFileLoader(path).Load():
        if event.HasField("file_version"):
            continue
        values = []
        for v in event.summary.value:
            item = tensor_util.make_ndarray(v.tensor).reshape(-1)[0]
            values.append((v.tag, item.decode() if isinstance(item, bytes) else float(item)))
        out.append((event.wall_time, event.step, values))
    return out


def f32(value):
    if number(value) is None:
        return math.nan
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def check_events(events, log):
    records = [r for r in records_of(log) if r["record"] in ("step", "epoch")]
    check(len(events) == len(records), f"{len(events)} events of {len(records)} records")
    scalars, before = 0, 0.0
    for (wall, step, values), record in zip(events, records):
        values = dict(values)
        is_step = record["record"] == "step"
        check(step == record["step" if is_step else "applied_steps"], f"step {step} of {record}")
        prefix = "step/" + (record["optimizer"] + "/" if record.get("optimizer") else "") if is_step else ""
        measured = record.get("measured", {})
        want = {prefix + n: record[n] for n in ("loss", "norm", "lr", "loss_scale") if is_step and n in record}
        if not is_step:
            want.update({"epoch/" + n: record[n] for n in ("train_loss", "validation_loss") if n in record})
            want.update({"epoch/train_loss/" + n: v for n, v in record.get("train_losses", {}).items()})
            want.update({"metrics/" + n: v for n, v in record.get("metrics", {}).items()})
            want.update({"time/training_seconds": measured["seconds"], "time/validation_seconds": measured["validation_seconds"],
                         "time/samples_per_second": measured["samples_per_second"],
                         "memory/training_peak_bytes": measured["training_peak_bytes"]})
            want.update({"memory/at_peak/" + n: v for n, v in measured["training_bytes_at_peak"].items()})
            want.update({"time/" + n: measured[n] for n in ("data_seconds", "saving_seconds") if n in measured})
        if is_step and record["applied"] is False:
            note = values.pop(prefix + "skipped", "")
            check(record.get("cause", "?") in note and record.get("parameter", "") in note, f"a skip says {note!r}")
        check(set(values) == set(want), f"tags {set(values) ^ set(want)}")
        for name, value in want.items():
            got = values.get(name, 0)
            check(got == f32(value) or (math.isnan(got) and math.isnan(f32(value))), f"{name}: {got}, not {value}")
            scalars += 1
        check(wall >= before, "wall times go back")
        before = wall
    print(f"{len(events)} events, {scalars} scalars")


def main():
    what, path, logs = sys.argv[1], sys.argv[2], sys.argv[3:]
    if what == "page":
        check_page(path, logs)
    elif what == "csv":
        check_csv(path, logs[0])
    elif what == "events":
        check_events(read_events(path), logs[0])
    elif what == "tensorboard":
        check_events(read_tensorboard(path), logs[0])
    else:
        sys.exit(__doc__)
    for fault in FAULTS[:20]:
        print(f"read_back: {fault}")
    sys.exit(1 if FAULTS else 0)


main()
