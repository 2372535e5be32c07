"""The sources of the site in one folder, as Sphinx wants them: the documents of the repository as they are but for links
that would leave the site, the pages of the reference, the lists, the samples."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from . import lists, reference
from .links import LINK, outside_code
from .markup import Markup, anchor, page_of
from .model import COMPOUNDS, BadInput

# Documents beside docs/*.md, and what the start page is made of.
_SAMPLES = "samples/README.md"
_MORE = ["CONTRIBUTING.md", "LIMITATIONS.md", "CHANGELOG.md", "tests/README.md", "tests/cusim/README.md"]
_START = "README.md"
_FOLDERS = ["src", "kernels", "cmake", "scripts/docs_site"]  # whose README.md files are pages
_DESIGN = ["docs/design.md", "docs/tour.md"]
_FIRST = ["build", "from-pytorch", "recipes", "recipes/training", "recipes/methods", "recipes/extending", "semantics", "memory",
          "distributed", "gpu", "records", "troubleshooting"]


def documents(root):
    """Paths of the documents that are pages, below root."""
    pages = sorted(str(p.relative_to(root)) for p in (root / "docs").rglob("*.md"))
    return [_START, *pages, *(p for p in (_SAMPLES, *_MORE) if (root / p).exists()), *folders(root)]


def folders(root):
    """The READMEs of the folders, below root."""
    return [str(p.relative_to(root)) for folder in _FOLDERS for p in sorted((root / folder).rglob("README.md"))]


def python_with_sphinx():
    """An interpreter that has Sphinx, its Markdown and the theme: this one, or the system's, whose packages they are."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if shutil.which(python) and subprocess.run([python, "-c", "import sphinx, myst_parser, furo"], capture_output=True,
                                                   check=False).returncode == 0:
            return python
    return None


class Site:
    def __init__(self, root, out, library):
        self.root, self.source, self.html = root, out / "source", out / "html"
        self.out, self.library = out, library
        self.markup = Markup(library)
        self.copied = set()  # files of the repository that pages link to

    # ---- Documents ----------------------------------------------------------------------------------
    def _target(self, page, target):
        """Where a link of a document leads on the site: another page, a header's page, or "repo:" and a file of which the
        site has a copy (conf.py)."""
        path, _, fragment = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return target
        found = os.path.normpath(pathlib.PurePosixPath(page).parent / path)
        top = os.path.relpath(".", pathlib.PurePosixPath(page).parent)
        tail = f"#{fragment}" if fragment else ""
        if found == _START:
            return f"{top}/index.md{tail}"
        if found in self.pages:
            return target
        if found in ("samples/small", "samples/models"):
            return f"{top}/samples.md"
        if found.removeprefix("include/") in self.library.headers:
            return f"{top}/api/{page_of(found.removeprefix('include/'))}.md"
        if (self.root / found).is_file():
            self.copied.add(found)
            return f"repo:{found}"
        if (self.root / found / "README.md").is_file():
            return f"{top}/{found}/README.md{tail}"
        if (self.root / found).is_dir():
            self.copied.add(found)
            return f"repo:{found}"
        return target

    def _document(self, page):
        text = (self.root / page).read_text(encoding="utf-8")
        pieces = []
        for piece, is_code in outside_code(text):
            if not is_code:
                piece = LINK.sub(lambda m: f"]({self._target(page, m[1])})", piece)
            pieces.append(piece)
        return "".join(pieces)

    def _write(self, path, text):
        path = self.source / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _copy_files(self):
        """Sources that documents link to, as text, so that a browser shows them."""
        for name in sorted(self.copied):
            target = self.source / "_extra/files" / f"{name}.txt"
            target.parent.mkdir(parents=True, exist_ok=True)
            if (self.root / name).is_dir():
                inside = sorted(p.name + ("/" if p.is_dir() else "") for p in (self.root / name).iterdir())
                target.write_text(f"{name}/\n\n" + "\n".join(inside) + "\n", encoding="utf-8")
            else:
                shutil.copyfile(self.root / name, target)

    # ---- Samples ------------------------------------------------------------------------------------
    def _samples(self):
        out = ["# Samples of one file\n", "Each is one file that is built with firn, runs in seconds on a CPU, and is a test. "
               "It makes its own data, prints what it has learned, and fails if it did not learn.\n"]
        files = [path for folder in ("small", "models")
                 for path in sorted((self.root / "samples" / folder).glob("*.cpp"))]
        for path in files:
            text = path.read_text(encoding="utf-8")
            head = reference.head_comment(text)
            out.append(f"## {path.stem.replace('_', ' ')}\n\n{head}\n\n```cpp\n{text.rstrip()}\n```\n")
        return "\n".join(out) if files else ""

    # ---- Everything ---------------------------------------------------------------------------------
    def _start(self, has_samples):
        guides = [p for p in self.pages if p.startswith("docs/") and p not in _DESIGN]
        order = {f"docs/{name}.md": i for i, name in enumerate(_FIRST)}
        guides.sort(key=lambda p: (order.get(p, len(order)), p))

        def tree(caption, entries):
            return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(entries) + "\n```\n"
        return (self._document(_START) + "\n"
                + tree("Guide", [p.removesuffix(".md") for p in (*guides, _SAMPLES) if p in self.pages] + ["samples"] * has_samples)
                + tree("Reference", ["api/operations", "api/options", "api/index"])
                + tree("Project", [p.removesuffix(".md") for p in [*_DESIGN, *(p for p in self.pages if p in _MORE)]])
                + tree("Folders", [p.removesuffix(".md") for p in folders(self.root)]))

    def write(self):
        """All sources. Returns figures for the last line."""
        shutil.rmtree(self.source, ignore_errors=True)
        self.pages = documents(self.root)
        table = reference.layers((self.root / "docs/design.md").read_text(encoding="utf-8"), self.library.headers)
        pages = reference.Pages(self.library, self.markup)
        for layer, headers in table:
            self._write(f"api/layer-{layer}.md", pages.layer(layer, headers))
            for header in headers:
                self._write(f"api/{page_of(header)}.md", pages.header(header, layer))
        self._write("api/index.md", pages.index(table))
        operations, operation_rows = lists.operations(self.library, self.markup, self.root)
        self._write("api/operations.md", operations)
        options, structs, option_rows = lists.options(self.library, self.markup)
        self._write("api/options.md", options)
        samples = self._samples()
        if samples:
            self._write("samples.md", samples)
        for page in self.pages[1:]:
            self._write(page, self._document(page))
        self._write("index.md", self._start(bool(samples)))
        self._copy_files()
        for path in (self.root / "docs/site").iterdir():
            if path.suffix in (".py", ".css"):
                shutil.copyfile(path, self.source / path.name)
        self._write("names.json", json.dumps(self._names()))
        return {"pages": len(list(self.source.rglob("*.md"))), "operations": operation_rows,
                "structs": structs, "options": option_rows}

    def _names(self):
        """For the search and for links from texts: [shown, kind, page, anchor] of each name."""
        found, seen = [], set()
        for name in self.library.names:
            if name.qualified in seen or name.name.startswith(("operator", "~")):
                continue
            seen.add(name.qualified)
            kind = name.kind if name.kind in COMPOUNDS else {"define": "macro", "typedef": "type"}.get(name.kind, name.kind)
            found.append([name.qualified.removeprefix("firn::"), kind, f"api/{page_of(name.file)}",
                          anchor(self.markup.first(name))])
        return found

    def build(self):
        """Runs Sphinx. Returns its warnings."""
        log = self.out / "sphinx.txt"
        command = [python_with_sphinx(), "-m", "sphinx", "-q", "-b", "html", "-w", str(log), "-d", str(self.out / "doctrees"),
                   "-j", "auto", str(self.source), str(self.html)]
        shutil.rmtree(self.html, ignore_errors=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BadInput(f"Sphinx ended with {done.returncode}: {done.stderr.strip()}")
        return [line.replace(f"{self.source}/", "") for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
