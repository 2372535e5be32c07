"""The code in the tables of docs/from-pytorch.md: every name of firn there must exist."""
import re

_PAGE = "docs/from-pytorch.md"
# Names of variables in the examples, of C++ and of its library.
_KNOWN = set("""
    a b batch clean d data e epoch epochs f first g group i k key last loader loss micro model module n net opt opt_a opt_b
    fc Net guard loss1 loss2 other p part path ranks run s set step t test train u value w world x y z
    auto bool catch class const constexpr double else false float for if in int new nullptr return sizeof static struct
    this true try using void while std vector make_shared string function move int64_t shared_ptr optional
    cout printf include firn h cpp main override public find_package target_link_libraries PRIVATE c g
    """.split())


def identifiers(code):
    """The identifiers of a piece of code, with :: between them, without texts, numbers and comments."""
    code = re.sub(r'"[^"]*"|//.*|\b\d[\w.]*', " ", code)
    return re.findall(r"(?:::)?[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)*", code)


def cells(text):
    """(line number, cell of the firn column) of all tables whose second column is headed `firn`."""
    column = None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("|"):
            column = None
            continue
        row = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if column is None:
            column = row.index("firn") if "firn" in row else -1
        elif column >= 0 and len(row) > column and not set(row[column]) <= {"-", ":", " "}:
            yield number, row[column]


def check(library, root, page=_PAGE):
    """Problems, and the number of names that were looked up."""
    path = root / page
    if not path.exists():
        return [], 0
    full = set(library.by_qualified)
    last = {q.rpartition("::")[2] for q in full}
    spaces = {part for q in full for part in q.split("::")[:-1]}
    spaces |= {m[0] for text in library.headers.values() for m in [re.search(r"(?<=namespace )\w+", text)] if m}
    options = {option for text in (root / "CMakeLists.txt").read_text(encoding="utf-8").split() for option in [text]
               if re.fullmatch(r"\(?FIRN_[A-Z_]+", option)}
    problems, count = [], 0
    for number, cell in cells(path.read_text(encoding="utf-8")):
        for code in re.findall(r"`([^`]+)`", cell):
            if code.startswith(("./", "scripts/", "docs/", "-")):
                continue
            for name in identifiers(code):
                if name in _KNOWN or name.lstrip("(") in options or name.startswith("std::"):
                    continue
                count += 1
                bare = name.removeprefix("::").removeprefix("firn::")
                if "::" in bare:
                    holds = any(q == f"firn::{bare}" or q.endswith(f"::{bare}") for q in full) or bare in spaces
                else:
                    holds = bare in last or bare in spaces
                if not holds:
                    problems.append(f"{page}:{number}: firn has no `{name}`")
    return problems, count
