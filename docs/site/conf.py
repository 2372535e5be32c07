# Sphinx's settings of the site, which scripts/docs builds. Overlap the theme, two things of firn's own: names of the
# reference are objects of the search, and code in texts that is such a name is a link to it.
import json
import pathlib
import re

from docutils import nodes
from sphinx.domains import Domain, ObjType

project = "firn"
copyright = "the authors of firn, MIT licence"  # noqa: A001: Sphinx's name
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = []
myst_url_schemes = ["http", "https", "mailto", "repo"]
suppress_warnings = ["myst.header"]  # a document may begin with another level
exclude_patterns = []
html_theme = "furo"
html_title = "firn"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["_extra"] if pathlib.Path(__file__).with_name("_extra").exists() else []
html_static_path = []
html_css_files = ["firn.css"]
html_permalinks_icon = "#"
html_theme_options = {"navigation_with_keys": False}
pygments_style = "tango"
pygments_dark_style = "monokai"
highlight_language = "none"

_NAMES = json.loads(pathlib.Path(__file__).with_name("names.json").read_text(encoding="utf-8"))


class Names(Domain):
    """The reference's names, for the search."""
    name = "firn"
    label = "firn"
    object_types = {kind: ObjType(kind) for kind in sorted({n[1] for n in _NAMES})}

    def get_objects(self):
        for shown, kind, page, place in _NAMES:
            dotted = shown.replace("::", ".")
            yield dotted, dotted, kind, page, place, 1

    def merge_domaindata(self, docnames, otherdata):
        pass

    def resolve_any_xref(self, *_arguments):
        return []


def _by_text():
    """The text of a name in a document, such as `train::fit()` or `StepOptions`, to its place. Short names of functions
    are too common to be links."""
    found, twice = {}, set()
    for shown, kind, page, place in _NAMES:
        parts = shown.split("::")
        for i in range(len(parts)):
            text = "::".join(parts[i:])
            if i == len(parts) - 1 and len(parts) > 1 and not (kind in ("class", "struct", "enum") and text[0].isupper()):
                continue
            if text in found and found[text] != (page, place):
                twice.add(text)
            found.setdefault(text, (page, place))
    for text in twice:
        if not any(n[0] == text for n in _NAMES):
            del found[text]
    for n in _NAMES:
        found[n[0]] = (n[2], n[3])
    return found


def link_names(app, doctree, docname):
    places = _by_text()
    for node in list(doctree.findall(nodes.literal)):
        if isinstance(node.parent, (nodes.reference, nodes.title)):
            continue
        text = node.astext()
        bare = re.sub(r"\(.*\)$", "", text).removeprefix("firn::")
        if bare not in places or not (text.endswith(")") or "::" in text or text[0].isupper()):
            continue
        page, place = places[bare]
        if page == docname:
            continue
        uri = app.builder.get_relative_uri(docname, page) + f"#{place}"
        node.replace_self(nodes.reference("", "", node.deepcopy(), internal=True, refuri=uri, classes=["name"]))


def link_files(app, doctree, docname):
    """repo:kernels/gemm.h is the site's copy of that file."""
    for node in doctree.findall(nodes.reference):
        if node.get("refuri", "").startswith("repo:"):
            top = "../" * docname.count("/")
            node["refuri"] = f"{top}files/{node['refuri'].removeprefix('repo:')}.txt"


def copy_style(app, error):
    if error is None:
        text = pathlib.Path(app.srcdir, "firn.css").read_text(encoding="utf-8")
        pathlib.Path(app.outdir, "_static", "firn.css").write_text(text, encoding="utf-8")


def setup(app):
    app.add_domain(Names)
    app.connect("doctree-resolved", link_names)
    app.connect("doctree-resolved", link_files)
    app.connect("build-finished", copy_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
