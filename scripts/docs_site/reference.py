"""Pages of the reference: one a header, one a layer, one of all. They are Markdown with HTML inside, since a signature with
links has no form in Markdown."""
import html
import re

from . import undocumented
from .markup import anchor, page_of
from .model import COMPOUNDS, BadInput

# The rows of docs/design.md's table that have public headers, in its words.
_LAYER = re.compile(r"^\| (\w+) \| (`[^|]*) \|", re.MULTILINE)


def layers(design, headers):
    """(layer, its headers), from the ground up, as the table of docs/design.md has them."""
    rows, taken = [], {}
    for layer, places in _LAYER.findall(design.partition("## Layers")[2].partition("## Rules")[0]):
        for place in re.sub(r"`", " ", places).split():
            place = f"firn/{place}"
            for header in headers:
                if header == place or (place.endswith("/") and header.startswith(place)):
                    # A more exact place wins: "optim/kinds.h" is of the base.
                    if header not in taken or len(place) > len(taken[header][1]):
                        taken[header] = (layer, place)
        rows.append(layer)
    missing = sorted(set(headers) - set(taken))
    if missing:
        raise BadInput(f"docs/design.md has no layer for {', '.join(missing)}")
    return [(layer, sorted(h for h, (f, _) in taken.items() if f == layer)) for layer in rows
            if any(f == layer for f, _ in taken.values())]


def head_comment(text):
    lines = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        lines.append(re.sub(r"^///? ?", "", line))
    return "\n".join(lines)


def _as_markdown(comment):
    """A head comment as Markdown: what is indented after an empty line is code or a table."""
    out, inside = [], False
    lines = comment.split("\n")
    for i, line in enumerate(lines):
        indented = line.startswith("  ")
        if not inside and indented and (i == 0 or not lines[i - 1].strip()):
            block = "\n".join(lines[i:]).split("\n\n")[0]
            out.append("```cpp" if re.search(r"[;{] *(//.*)?$", block, re.MULTILINE) else "```text")
            inside = True
        elif inside and line.strip() and not indented:
            out.append("```")
            inside = False
        out.append(line if inside else re.sub(r"([*_<>])", r"\\\1", line))
    return "\n".join([*out, "```"] if inside else out)


def _raw(text):
    return f"```{{raw}} html\n{text}\n```\n"


class Pages:
    def __init__(self, library, markup):
        self.library, self.markup = library, markup
        self._of_all, more = set(), ["firn/firn.h"]  # what firn.h includes
        while more:
            found = set(re.findall(r'#include "([^"]+)"', library.headers[more.pop()])) - self._of_all
            self._of_all |= found
            more += found

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
                f'<li id="{anchor(v)}"><code>{html.escape(v.name + (" = " + v.initializer if v.initializer else ""))}</code>'
                f"{': ' + m.plain(v) if v.has_comment else ''}</li>" for v in name.members)
            body += f"<ul class='values'>{values}</ul>"
        protected = '<span class="badge">for derived classes</span>' if name.protected else ""
        return (f'<div class="entry level{level}">{"".join(ids)}<pre class="signature">{shown}</pre>{protected}'
                f'<div class="text">{body}</div></div>')

    def _members(self, owner, level):
        out, block = [], []
        copies = [n for n in owner.members if n.kind == "function" and undocumented.is_copy(n)]
        rest = [n for n in owner.members if n.kind not in COMPOUNDS and n not in copies]
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
        if copies:
            out.append(self._entry(copies, level))
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

    def header(self, file, layer):
        """The page of a header."""
        text = self.library.headers[file]
        own = [n for n in self.library.names if n.file == file
               and not any(o.kind in COMPOUNDS for o in self.library.by_qualified.get(n.scope, []))]
        out = [f"# {file}\n", _as_markdown(head_comment(text)) + "\n",
               f"Layer: [{layer}](layer-{layer}.md). `#include <{file}>`"
               + (" or `<firn/firn.h>`" if file in self._of_all else "") + "\n"]
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
            if name.kind in COMPOUNDS or name.kind == "enum":
                end()
                out.append(f"## {name.name}\n")
                out.append(_raw(self._class(name, 1) if name.kind in COMPOUNDS else self._entry([name], 1)))
                title = None
                continue
            wanted = section or {"function": "Functions", "define": "Macros"}.get(name.kind, "Names")
            if wanted != title and not (section is None and title and name.kind != "function"):
                end()
                out.append(f"## {wanted}\n")
                title = wanted
            if block and not (name.group is block[0] or (name.qualified == block[0].qualified and not name.has_comment)):
                end()
            block.append(name)
        end()
        return "\n".join(out)

    def _line(self, header):
        first = re.split(r"(?<=[.:])\s", head_comment(self.library.headers[header]).replace("\n", " "))[0]
        what = re.sub(r"([*_<>])", r"\\\1", first.rstrip(":."))
        return f"- [{header}]({page_of(header)}.md): {what}."

    def layer(self, layer, headers):
        """The page of a layer: its headers."""
        entries = "\n".join(f"{h.removeprefix('firn/')} <{page_of(h)}>" for h in headers)
        return "\n".join([f"# {layer}\n", *map(self._line, headers), f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"])

    def index(self, table):
        """All headers by layer, with what each is."""
        out = ["# Headers\n",
               "Every public name stands on the page of its header. Layers are those of [the design](../docs/design.md); "
               "each includes only layers below it. [Operations](operations.md) and [options](options.md) are listed by "
               "themselves.\n"]
        for layer, headers in table:
            out += [f"## {layer}\n", *map(self._line, headers), ""]
        layers_in_order = "\n".join(f"{layer} <layer-{layer}>" for layer, _ in table)
        return "\n".join([*out, f"```{{toctree}}\n:hidden:\n\n{layers_in_order}\n```\n"])
