"""Pages of the reference: one a header, one of all floors. They are Markdown with HTML inside, since a signature with
links has no form in Markdown."""
import html
import re

from .markup import anchor, page_of
from .model import COMPOUNDS

# The rows of docs/design.md's table that have public headers, in its words.
_FLOOR = re.compile(r"^\| (\w+) \| (`[^|]*) \|", re.MULTILINE)


def floors(design, headers):
    """(floor, its headers), from the ground up, as the table of docs/design.md has them."""
    rows, taken = [], {}
    for floor, places in _FLOOR.findall(design.partition("## Floors")[2].partition("## Laws")[0]):
        for place in re.sub(r"`", " ", places).split():
            place = f"firn/{place}"
            for header in headers:
                if header == place or (place.endswith("/") and header.startswith(place)):
                    # A more exact place wins: "optim/kinds.h" is of the base.
                    if header not in taken or len(place) > len(taken[header][1]):
                        taken[header] = (floor, place)
        rows.append(floor)
    missing = sorted(set(headers) - set(taken))
    if missing:
        raise ValueError(f"docs/design.md has no floor for {', '.join(missing)}")
    return [(floor, sorted(h for h, (f, _) in taken.items() if f == floor)) for floor in rows
            if any(f == floor for f, _ in taken.values())]


def head_comment(text):
    lines = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        lines.append(re.sub(r"^///? ?", "", line))
    return "\n".join(lines)


def _raw(text):
    return f"```{{raw}} html\n{text}\n```\n"


class Pages:
    def __init__(self, library, markup):
        self.library, self.markup = library, markup

    def _entry(self, names, level):
        """Declarations that share a description."""
        name, m = names[0], self.markup
        ids, seen = [], set()
        for n in names:
            if m.first(n) is n and anchor(n) not in seen:
                ids.append(f'<span id="{anchor(n)}"></span>')
                seen.add(anchor(n))
        shown = "\n".join(m.signature(n) for n in names)
        body = m.description(name)
        if name.kind == "enum":
            values = "".join(
                f'<li id="{anchor(v)}"><code>{html.escape(v.name)}{html.escape(" = " + v.initializer if v.initializer else "")}'
                f"</code>{': ' + m.plain(v) if v.has_comment else ''}</li>" for v in name.members)
            body += f"<ul class='values'>{values}</ul>"
        protected = '<span class="badge">for derived classes</span>' if name.protected else ""
        return (f'<div class="entry level{level}">{"".join(ids)}<pre class="signature">{shown}</pre>{protected}'
                f'<div class="text">{body}</div></div>')

    def _members(self, owner, level):
        out, block = [], []
        rest = [n for n in owner.members if n.kind not in COMPOUNDS]
        nested = [n for n in owner.members if n.kind in COMPOUNDS]

        def end():
            if block:
                out.append(self._entry(block, level))
            block.clear()
        for name in rest:
            if block and not (name.group is block[0] or (name.qualified == block[0].qualified and not name.has_comment)
                              or (block[0].kind == name.kind == "function" and not name.has_comment
                                  and not block[0].has_comment and not self.markup.description(name)
                                  and not self.markup.description(block[0]))):
                end()
            block.append(name)
        end()
        for name in nested:
            out.append(self._class(name, level))
        return "".join(out)

    def _class(self, name, level):
        m = self.markup
        bases = "".join(
            f"<p class='bases'>Also has the members of {m.link(base[0], f'<code>{html.escape(base[0].name)}</code>')}.</p>"
            for base in (self.library.by_qualified.get(b if b.startswith("firn::") else f"firn::{b}")
                         for b in self.library.bases.get(name.qualified, [])) if base)
        return (f'<div class="entry class level{level}"><span id="{anchor(name)}"></span>'
                f'<pre class="signature">{m.signature(name)}</pre><div class="text">{m.description(name)}{bases}'
                f'<div class="members">{self._members(name, level + 1)}</div></div></div>')

    def header(self, file, floor):
        """The page of a header."""
        text = self.library.headers[file]
        own = [n for n in self.library.names if n.file == file
               and not any(o.kind in COMPOUNDS for o in self.library.by_qualified.get(n.scope, []))]
        out = [f"# {file}\n", re.sub(r"([*_<>])", r"\\\1", head_comment(text)) + "\n",
               f"Floor: [{floor}](index.md#{floor}). `#include <{file}>`"
               + (" or `<firn/firn.h>`" if f'#include "{file}"' in self.library.headers["firn/firn.h"] else "") + "\n"]
        sections = [(i + 1, re.sub(r"^// -+ |\.? -+$|\..*$", "", line).strip()) for i, line in enumerate(text.split("\n"))
                    if re.match(r"// ---- ", line)]
        block, title = [], None

        def end():
            if block:
                out.append(_raw(self._entry(block, 1)))
            block.clear()
        for name in own:
            before = [t for line, t in sections if line < name.line]
            section = before[-1] if before else None
            if name.kind in COMPOUNDS:
                end()
                out.append(f"## {name.name}\n")
                out.append(_raw(self._class(name, 1)))
                title = None
                continue
            wanted = section or {"function": "Functions", "enum": "Enumerations", "define": "Macros"}.get(name.kind, "Names")
            if wanted != title and not (section is None and title and name.kind != "function"):
                end()
                out.append(f"## {wanted}\n")
                title = wanted
            if block and not (name.group is block[0] or (name.qualified == block[0].qualified and not name.has_comment)):
                end()
            block.append(name)
        end()
        return "\n".join(out)

    def index(self, table):
        """All headers by floor, with what each is, and the hidden table of contents."""
        out = ["# Reference\n",
               "Every public name stands on the page of its header. Floors are those of [the design](../docs/design.md); "
               "each includes only floors below it. [Operations](operations.md) and [options](options.md) are listed by "
               "themselves.\n"]
        for floor, headers in table:
            out.append(f"({floor})=\n## {floor}\n")
            for header in headers:
                first = re.split(r"(?<=[.:])\s", head_comment(self.library.headers[header]).replace("\n", " "))[0]
                what = re.sub(r"([*_<>])", r"\\\1", first.rstrip(":."))
                out.append(f"- [{header}]({page_of(header)}.md): {what}.")
            out.append("")
            out.append("```{toctree}\n:hidden:\n" + "\n".join(
                f"{h.removeprefix('firn/')} <{page_of(h)}>" for h in headers) + "\n```\n")
        return "\n".join(out)
