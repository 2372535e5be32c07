#!/usr/bin/env python3
"""Writes docs/opinfo.md: what scripts/interop torch leaves out, by the lists beside the tables. With --check it only
says whether the document is true to them.

Each line of a list is: patterns of operations | ... | reason. A line "# ---- TITLE ----" begins a section.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs/opinfo.md"

HEAD = """# PyTorch's operations, and what is left out

`scripts/interop torch` computes PyTorch's own sample inputs (its `OpInfo`s) with firn, in f32, f64, f16 and bf16, and
compares results, gradients and, in f64, second derivatives. It fails on a difference. Here is what it does not compare:
operations that firn does not have, and samples that firn refuses. The script fails if a line of this list is missing, or
if nothing meets it. The list is written by `tests/interop/opinfo_list.py`.
"""


def read(name):
    """[(title, [(operations, reason)])] of a list."""
    sections = []
    for line in (HERE / "opinfo" / name).read_text().splitlines():
        if line.startswith("# ---- "):
            sections.append((line.strip("# -"), []))
        elif line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split(" | ")]
            sections[-1][1].append((parts[0].split(), parts[-1]))
    return sections


def table(sections, head):
    out = ""
    for title, lines in sections:
        out += f"\n### {title}\n\n| {head} | Reason |\n|---|---|\n"
        out += "".join(f"| {', '.join(f'`{o}`' for o in operations)} | {reason} |\n" for operations, reason in lines)
    return out


def document():
    return (HEAD + "\n## Operations without an entry\n" + table(read("without.txt"), "Operations")
            + "\n## Samples that are refused\n" + table(read("refusals.txt"), "Operations"))


def main():
    if "--check" in sys.argv:
        if DOCUMENT.read_text() != document():
            sys.exit(f"{DOCUMENT.name} is not what the lists say: run tests/interop/opinfo_list.py")
        return
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
