"""HTML of Doxygen's XML: descriptions, types with links, signatures."""
import html
import re

from . import undocumented
from .model import COMPOUNDS, flat

_WIDTH = 90  # of a signature in one line
_INLINE = {"computeroutput": "code", "bold": "strong", "emphasis": "em", "superscript": "sup", "subscript": "sub"}
_SECTIONS = {"return": "Returns", "note": "Note", "see": "See", "warning": "Warning", "pre": "Before", "post": "After"}
_CHARACTERS = {"ndash": "–", "mdash": "—", "nonbreakablespace": " ", "linebreak": "<br>", "sp": " "}


def anchor(name):
    """The id of a name on its page: "optim.AdamW"."""
    short = name.qualified.removeprefix("firn::").replace("::", ".")
    return re.sub(r"[^\w.]", lambda m: f"-{ord(m[0]):x}", short.replace(" ", "_"))


def page_of(file):
    """The page of a header: "firn/nn/module.h" -> "nn-module"."""
    return file.removeprefix("firn/").removesuffix(".h").replace("/", "-")


class Markup:
    def __init__(self, library):
        self.library = library

    def href(self, name):
        return f"{page_of(name.file)}.html#{anchor(self.first(name))}"

    def first(self, name):
        """Overloads share the place of the first one in their header."""
        same = [n for n in self.library.by_qualified.get(name.qualified, [name]) if n.file == name.file]
        return same[0] if same else name

    def link(self, name, text):
        return f'<a href="{self.href(name)}">{text}</a>'

    # ---- Types and signatures -----------------------------------------------------------------------
    def linked(self, element):
        """The text of a type or default, its names with links."""
        if element is None:
            return ""
        parts = [html.escape(element.text or "")]
        for child in element:
            inner = html.escape("".join(child.itertext()))
            target = self.library.by_id.get(child.get("refid")) if child.tag == "ref" else None
            parts.append(self.link(target, inner) if target is not None else inner)
            parts.append(html.escape(child.tail or ""))
        text = re.sub(r"\s+", " ", "".join(parts)).strip()
        return re.sub(r"(&lt;) | (&gt;)", lambda m: m[1] or m[2], re.sub(r" (&amp;|\*)", r"\1", text))

    def _template(self, name):
        parameters = name.xml.find("templateparamlist")
        if parameters is None:
            return ""
        shown = []
        for p in parameters.findall("param"):
            one = " ".join(x for x in (self.linked(p.find("type")), html.escape(flat(p.find("declname")))) if x)
            default = self.linked(p.find("defval"))
            shown.append(f"{one} = {default}" if default else one)
        return f'<span class="k">template</span> &lt;{", ".join(shown)}&gt;\n'

    def _parameters(self, name):
        shown = []
        for p in name.xml.findall("param"):
            kind, own = self.linked(p.find("type")), html.escape(flat(p.find("declname")))
            bare = html.unescape(re.sub(r"<[^>]*>", "", kind))
            if "(&" in bare and own:
                one = kind
            else:
                one = f"{kind} <i>{own}</i>" if own else kind
            array = flat(p.find("array"))
            default = self.linked(p.find("defval"))
            shown.append(one + html.escape(array) + (f" = {default}" if default else ""))
        return shown

    def signature(self, name):
        """A declaration as HTML."""
        short = f"<b>{html.escape(name.name)}</b>"
        if name.kind in COMPOUNDS:
            if name.kind == "concept":
                return f"{self._template(name)}concept {short}"
            bases = ", ".join(self.linked(b) for b in name.xml.findall("basecompoundref"))
            return f"{self._template(name)}{name.kind} {short}" + (f" : {bases}" if bases else "")
        if name.kind == "enum":
            strong = "class " if name.xml.get("strong") == "yes" else ""
            return f"enum {strong}{short}"
        if name.kind == "define":
            parameters = ", ".join(flat(p.find("defname")) for p in name.xml.findall("param"))
            return f"#define {short}" + (f"({parameters})" if name.xml.find("param") is not None else "")
        kind = self.linked(name.xml.find("type"))
        if name.kind == "typedef":
            return f"{self._template(name)}using {short} = {kind}"
        before = "static " if name.xml.get("static") == "yes" and name.scope in self.library.bases else ""
        if name.kind == "variable":
            default = self.linked(name.xml.find("initializer"))
            return f"{before}{kind} {short}{html.escape(name.arguments)}{' ' + default if default else ''}"
        parameters, after = self._parameters(name), re.sub(r"^.*\)", "", name.arguments)
        constraint = flat(name.xml.find("requiresclause"))
        head = self._template(name) + (f"requires {html.escape(constraint)}\n" if constraint else "")
        head += f"{before}{kind + ' ' if kind else ''}{short}("
        tail = f"){html.escape(after)}"
        one = head + ", ".join(parameters) + tail
        if len(html.unescape(re.sub(r"<[^>]*>", "", one)).split("\n")[-1]) <= _WIDTH:
            return one
        return head + "\n    " + ",\n    ".join(parameters) + tail

    # ---- Descriptions -------------------------------------------------------------------------------
    def _inside(self, element):
        parts = [html.escape(element.text or "")]
        for child in element:
            parts.append(self._node(child))
            parts.append(html.escape(child.tail or ""))
        return "".join(parts)

    def _node(self, e):
        if e.tag in _INLINE:
            return f"<{_INLINE[e.tag]}>{self._inside(e)}</{_INLINE[e.tag]}>"
        if e.tag in _CHARACTERS:
            return _CHARACTERS[e.tag]
        if e.tag == "ref":
            target = self.library.by_id.get(e.get("refid"))
            return self.link(target, self._inside(e)) if target is not None else self._inside(e)
        if e.tag == "ulink":
            return f'<a href="{html.escape(e.get("url"))}">{self._inside(e)}</a>'
        if e.tag == "para":
            return self.paragraphs(e)
        if e.tag in ("itemizedlist", "orderedlist"):
            tag = "ul" if e.tag == "itemizedlist" else "ol"
            return f"<{tag}>" + "".join(f"<li>{self._inside(i)}</li>" for i in e.findall("listitem")) + f"</{tag}>"
        if e.tag in ("verbatim", "preformatted"):
            return f'<pre class="code">{self._inside(e)}</pre>'
        if e.tag == "programlisting":
            lines = ["".join(self._inside(h) for h in line) for line in e.findall("codeline")]
            return f'<pre class="code">{chr(10).join(lines)}</pre>'
        if e.tag == "simplesect":
            label = _SECTIONS.get(e.get("kind"), e.get("kind", "").capitalize())
            return f"<p><b>{label}</b>: {''.join(self._inside(p) for p in e.findall('para'))}</p>"
        if e.tag == "parameterlist":
            rows = []
            for item in e.findall("parameteritem"):
                names = ", ".join(flat(n) for n in item.iter("parametername"))
                rows.append(f"<li><code>{html.escape(names)}</code>: {flat(item.find('parameterdescription'))}</li>")
            return f"<ul>{''.join(rows)}</ul>"
        return self._inside(e)

    def paragraphs(self, para):
        """A <para>: what is a block in it stands outside of <p>."""
        out, run = [], [html.escape(para.text or "")]

        def end():
            text = "".join(run).strip()
            if text:
                out.append(f"<p>{text}</p>")
            run.clear()
        for child in para:
            if child.tag in ("itemizedlist", "orderedlist", "verbatim", "preformatted", "programlisting", "simplesect",
                             "parameterlist"):
                end()
                out.append(self._node(child))
            else:
                run.append(self._node(child))
            run.append(html.escape(child.tail or ""))
        end()
        return "".join(out)

    def comment(self, name):
        """Brief and detailed description of a declaration as HTML, in one flow."""
        brief = self._inside(name.brief.find("para")).strip() if name.brief is not None and name.brief.find(
            "para") is not None else ""
        detail = "".join(self.paragraphs(p) for p in (name.detail.findall("para") if name.detail is not None else []))
        if brief and detail.startswith("<p>"):
            return f"<p>{brief} {detail[3:]}"
        return (f"<p>{brief}</p>" if brief else "") + detail

    def description(self, name):
        """What documents a name, as HTML: its comment, or what a rule says."""
        found = undocumented.explain(name, self.library)
        if found is None or found.rule in ("special", "standard"):
            return ""
        if found.text:
            return f"<p>{html.escape(found.text)}</p>"
        if found.rule == "inherited" and found.source is None:
            return "<p>As in the base.</p>"
        if found.rule == "own" or found.source is None:
            return self.comment(name)
        if found.source.kind == "variable":  # several in one line
            return self.comment(found.source)
        if found.rule == "overloads" and found.source.file == name.file:
            return ""
        see = self.link(found.source, f"<code>{html.escape(found.source.name)}</code>")
        if found.rule == "member form":
            in_place = name.name.endswith("_") and not found.source.name.endswith("_")
            return f"<p>{see}{' in place' if in_place else ''}: {flat(found.source.brief)}</p>"
        return f"<p>See {see}.</p>"

    def plain(self, name):
        """The same as text without paragraphs, for tables."""
        text = self.description(name)
        text = re.sub(r"</p>\s*<p>", " ", text)
        return re.sub(r"^<p>|</p>$", "", text.strip())
