#!/usr/bin/env python3
"""The checks of scripts/docs find what they should: docs_checks.py SOURCE. A small library and documents with known
faults are made in a folder, and each fault must be found, and nothing else. 77: Doxygen is missing."""
import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
source = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(source / "scripts"))
from docs_site import links, markup, model, tables, undocumented  # noqa: E402

HEADER = """// A header.
#pragma once
namespace firn {
namespace detail { struct Hidden { int bare; }; }
/// A point.
struct Point {
  int x = 0;  ///< to the right
  int y = 0;
  Point() = default;
  Point(const Point&) = default;
  bool operator==(const Point&) const;
  int length() const;
 private:
  int bare_ = 0;
};
struct ShiftOptions {
  double by = 1;  ///< metres
  int device = 0;
};
/// Moves it.
void shift(Point& p, const ShiftOptions& options = {});
void shift(Point& p, double by);
/// first() and second() are a pair.
int first(const Point& p);
int second(const Point& p, int more);
int third(const Point& p, long more);

int lonely();
/// How far.
enum class Far { near, away };
enum class Kind { one };
/// Has a class that it uses. An undefined command: \\nonsense
class Rest {
 public:
  int own() const;  ///< something
  // For the library.
  int inner() const;
};
int after(int);
}  // namespace firn
"""


def expect(found, wanted, what):
    if sorted(found) != sorted(wanted):
        sys.exit(f"FAILED: {what}:\n  expected {sorted(wanted)}\n  found    {sorted(found)}")


def check_names(root, out):
    (root / "include/firn").mkdir(parents=True)
    (root / "include/firn/point.h").write_text(HEADER, encoding="utf-8")
    (root / "docs/site").mkdir(parents=True)
    shutil.copyfile(source / "docs/site/Doxyfile", root / "docs/site/Doxyfile")
    warnings = model.run_doxygen(root, out)
    expect([w.partition("warning: ")[2] for w in warnings], ["Found unknown command '\\nonsense'"], "warnings of Doxygen")
    library = model.read(out, root)
    expect([name for _, _, _, name in undocumented.missing(library)],
           [f"firn::{n}" for n in ("Point::y", "Point::length", "third", "lonely", "Kind", "Kind::one", "after")],
           "names without documentation")
    shown = {n.qualified for n in library.names}
    for hidden in ("firn::detail::Hidden", "firn::Point::bare_", "firn::Rest::inner"):
        if hidden in shown:
            sys.exit(f"FAILED: {hidden} is shown")
    m = markup.Markup(library)
    point = library.by_qualified["firn::Point"][0]
    shift = library.by_qualified["firn::shift"][0]
    expect([m.href(point)], ["point.html#Point"], "the place of a name")
    if m.href(point) not in m.signature(shift) or "ShiftOptions" not in m.signature(shift):
        sys.exit(f"FAILED: a signature without links: {m.signature(shift)}")
    expect([m.plain(library.by_qualified["firn::ShiftOptions"][0])], ["Options of shift."], "what a struct of options is for")
    (root / "CMakeLists.txt").write_text("option(FIRN_ONE x ON)\n", encoding="utf-8")
    (root / "docs/table.md").write_text("| PyTorch | firn |\n|---|---|\n| `gone` | `shift(Point(), {.by = 2})` |\n"
                                        "| x | `firn::Point::z`, `stay(Point)`, `Far::near` |\n", encoding="utf-8")
    wrong, count = tables.check(library, root, "docs/table.md")
    expect(wrong, ["docs/table.md:4: firn has no `firn::Point::z`", "docs/table.md:4: firn has no `stay`"], "tables")
    expect([count], [7], "names that were looked up")


def check_documents(root):
    (root / "a.md").write_text("# One thing\n\n## Two `code` parts\n\n[b](b.md) [c](#one-thing) [d](b.md#there)\n"
                               "[e](gone.md) [f](#two-code-parts) [g](#gone) [h](b.md#gone) [i](https://x)\n"
                               "```text\n[no](link.md)\n```\nand `[no](link.md)` [j](https://a.example/x)\n", encoding="utf-8")
    (root / "b.md").write_text("# There\n", encoding="utf-8")
    expect(links.in_documents(root, ["a.md", "b.md"]),
           ["a.md: 'gone.md' does not exist", "a.md: '#gone' has no such heading", "a.md: 'b.md#gone' has no such heading",
            "a.md: 'https://x' is no address"], "links of documents")


def check_pages(root):
    (root / "html").mkdir()
    (root / "html/a.html").write_text(
        '<a href="b.html">x</a><a href="b.html#in">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>'
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="s.css">'
        '<img src="//img.example/x.png"><a href="https://fine.example/">x</a>', encoding="utf-8")
    (root / "html/b.html").write_text('<p id="in">x</p>', encoding="utf-8")
    (root / "html/s.css").write_text("@import 'https://fonts.example/f.css'; a { background: url(data:x) }", encoding="utf-8")
    found, count = links.in_pages(root / "html")
    expect(found, ["a.html: 'b.html#gone' has no such place", "a.html: 'c.html' does not exist",
                   "a.html: loads 'https://cdn.example/x.js' from the network",
                   "a.html: loads '//img.example/x.png' from the network",
                   "s.css: loads 'https:...' from the network"], "links of pages")
    expect([count], [8], "links that were counted")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="docs-checks-") as top:
        top = pathlib.Path(top)
        check_documents(top)
        check_pages(top)
        if shutil.which("doxygen") is None:
            print("docs_checks.py: skipped: doxygen is missing: scripts/setup doxygen", file=sys.stderr)
            sys.exit(77)
        check_names(top / "library", top / "xml")
    print("docs: the checks find what they should")
