"""Dead links: of the documents as they are in the repository, and of the pages that were built."""
import html.parser
import os
import pathlib
import re
import urllib.parse

LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)\)")
_EXTERNAL = re.compile(r"https?://[\w.-]+\.[a-z]{2,}(:\d+)?(/[^\s<>\"]*)?")
_MAIL = re.compile(r"mailto:[^@\s]+@[\w.-]+")


def outside_code(text):
    """(piece, is code) of a Markdown text: fenced blocks and code spans are code."""
    at = 0
    for match in re.finditer(r"^(```+|~~~+)[^\n]*\n.*?^\1[ ]*$|(`+)(?!`).+?(?<!`)\2(?!`)", text, re.MULTILINE | re.DOTALL):
        yield text[at:match.start()], False
        yield match[0], True
        at = match.end()
    yield text[at:], False


def slugs(text):
    """The anchors of a document's headings, as forges and MyST make them."""
    found, counts = set(), {}
    for heading in re.findall(r"^#{1,6} +(.+?)\s*#*$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL),
                              re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        n = counts.get(slug, 0)
        counts[slug] = n + 1
        found.add(f"{slug}-{n}" if n else slug)
    return found


def is_well_formed(url):
    return bool(_EXTERNAL.fullmatch(url) or _MAIL.fullmatch(url))


def in_documents(root, pages):
    """What is wrong with the links of Markdown files."""
    problems, anchors = [], {}
    for page in pages:
        text = (root / page).read_text(encoding="utf-8")
        for piece, is_code in outside_code(text):
            if is_code:
                continue
            for target in LINK.findall(piece):
                if re.match(r"[a-z]+:", target):
                    if not is_well_formed(target):
                        problems.append(f"{page}: '{target}' is no address")
                    continue
                path, _, fragment = target.partition("#")
                found = root / os.path.normpath(pathlib.PurePosixPath(page).parent / path) if path else root / page
                if not found.exists():
                    problems.append(f"{page}: '{target}' does not exist")
                elif fragment and found.suffix == ".md":
                    if found not in anchors:
                        anchors[found] = slugs(found.read_text(encoding="utf-8"))
                    if fragment not in anchors[found]:
                        problems.append(f"{page}: '{target}' has no such heading")
    return problems


class _Page(html.parser.HTMLParser):
    """Ids, links and what a browser would load."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if attributes.get("id"):
            self.ids.add(attributes["id"])
        if tag == "a":
            if attributes.get("name"):
                self.ids.add(attributes["name"])
            if attributes.get("href"):
                self.links.append(attributes["href"])
        elif tag == "link":
            if attributes.get("rel") not in ("canonical", "prev", "next", "author", "copyright"):
                self.loads.append(attributes.get("href", ""))
            else:
                self.links.append(attributes.get("href", ""))
        for name in ("src", "srcset", "data", "poster"):
            if tag in ("script", "img", "iframe", "source", "audio", "video", "object", "embed") and attributes.get(name):
                self.loads.append(attributes[name])


def in_pages(folder):
    """What is wrong with the links of built pages, and what they load from elsewhere. Returns problems and the number of
    links."""
    pages, problems, count = {}, [], 0
    for path in sorted(folder.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        pages[path] = page
    for path, page in pages.items():
        shown = path.relative_to(folder)
        for target in page.links + page.loads:
            loaded = target in page.loads
            if target.startswith("data:"):
                continue
            count += 1
            if re.match(r"([a-z]+:|//)", target):
                if loaded:
                    problems.append(f"{shown}: loads '{target}' from the network")
                elif not is_well_formed(target):
                    problems.append(f"{shown}: '{target}' is no address")
                continue
            place, _, fragment = target.partition("#")
            place = urllib.parse.unquote(place.partition("?")[0])
            found = pathlib.Path(os.path.normpath(path.parent / place)) if place else path
            if not found.exists():
                problems.append(f"{shown}: '{target}' does not exist")
            elif fragment and found in pages and urllib.parse.unquote(fragment) not in pages[found].ids:
                problems.append(f"{shown}: '{target}' has no such place")
    for path in sorted(folder.rglob("*.css")):
        for target in re.findall(r"(?:url\(|@import\s+)['\"]?(https?:|//)", path.read_text(encoding="utf-8")):
            problems.append(f"{path.relative_to(folder)}: loads '{target}...' from the network")
    return problems, count
