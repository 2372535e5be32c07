"""What a kernel must keep to, beside the figures that are in the repository."""
import dataclasses
import fnmatch
import re

from .figures import BUDGET
from .machine_code import BadInput

# By how much a figure may get worse unseen: the compiler's noise when a line nearby changes.
_MARGINS = {"registers": 8, "occupancy": 0, "stack": 0, "spills": 0, "shared": 1024,
            "local_in_loop": 0, "f64_in_loop": 0, "narrow_in_loop": 0, "unfenced": 0}
_INSTRUCTIONS_MARGIN = 1.05
# The rules, by the word that ends a finding: what usually breaks them, and what helps.
RULES = {
    "local": "Values of a thread lie in memory: an array is indexed at run time, or registers are missing. "
             "Unroll the loop so that indices are constants, or hold less.",
    "f64": "A double constant, a division by one or a double variable computes in f64. Write 1.0f, or "
           "compute it once before the loop.",
    "narrow": "Elements are loaded one by one where whole packs could be. Load a Pack or PackWords.",
    "fence": "What other blocks wrote is visible only between two fences. Count by is_last_block (block.cuh).",
    "budget": "The instructions take longer than the bytes. Use the formulas of coarse.cuh, and move what does "
              "not change, such as checks of bounds and choices of dtype, out of the loop.",
}


@dataclasses.dataclass
class Family:
    """Kernels that one table row of docs/gpu.md stands for: bound by the memory, not by arithmetic."""
    title: str
    source: str
    kernel: str  # regular expression of the whole name
    loads: int  # bytes that must move: loads x those that the main path loads
    stores: int  # + stores x those that it stores
    share: float  # of a copy's rate that is the goal

    def holds(self, row):
        return row.source == self.source and re.fullmatch(self.kernel, row.kernel) is not None

    def instructions_a_byte(self, row):
        moved = self.loads * row.loaded + self.stores * row.stored
        return row.instructions / moved if moved else float("inf")

    @property
    def budget(self):
        return BUDGET / self.share


@dataclasses.dataclass
class Excuse:
    rule: str
    source: str
    kernel: str  # pattern with *
    reason: str
    used: bool = False

    def covers(self, row):
        return row.source == self.source and fnmatch.fnmatchcase(row.kernel, self.kernel)


def table(path, names):
    """Fields of the lines that are no comments, one for each name."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as why:
        raise BadInput(f"{path} cannot be read: {why}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t") if field.strip()]
        if len(fields) != len(names):
            raise BadInput(f"{path}:{number}: {len(fields)} fields in place of {len(names)}, which tabs separate: "
                           f"{', '.join(names)}")
        yield number, fields


def families(path):
    found = []
    for number, fields in table(path, ("title", "source", "kernel", "loads", "stores", "share")):
        title, source, kernel, loads, stores, share = fields
        try:
            re.compile(kernel)
            family = Family(title, source, kernel, int(loads), int(stores), float(share))
        except (ValueError, re.error) as why:
            raise BadInput(f"{path}:{number}: {why}") from None
        if not 0 < family.share <= 1:
            raise BadInput(f"{path}:{number}: a share of {share}; it is above 0 and at most 1")
        found.append(family)
    return found


def excuses(path):
    found = []
    for number, fields in table(path, ("rule", "source", "kernel", "reason")):
        if fields[0] not in RULES:
            raise BadInput(f"{path}:{number}: there is no rule '{fields[0]}': {', '.join(RULES)}")
        found.append(Excuse(*fields))
    return found


def broken(row, all_families):
    """(rule, what was found) for each rule that the kernel breaks."""
    if row.local_in_loop:
        yield "local", f"{row.local_in_loop} accesses to local memory in loops, {row.spills} bytes of spills"
    if row.f64_in_loop and "double" not in row.kernel:
        yield "f64", f"{row.f64_in_loop} f64 operations in loops"
    if row.narrow_in_loop:
        yield "narrow", f"{row.narrow_in_loop} 16-bit loads beside 128-bit accesses"
    if row.unfenced:
        yield "fence", "a ticket without a fence before and after it"
    for family in all_families:
        if family.holds(row) and family.instructions_a_byte(row) > family.budget:
            yield "budget", (f"{family.instructions_a_byte(row):.1f} instructions a byte, budget "
                             f"{family.budget:.1f} ({family.title})")


def worse(row, before):
    """What got worse since the committed figures, by more than its margin."""
    for name, margin in _MARGINS.items():
        now, then = getattr(row, name), getattr(before, name)
        change = then - now if name == "occupancy" else now - then
        if change > margin:
            yield f"{name} {then} -> {now}"
    if row.wide < before.wide:
        yield f"wide {before.wide} -> {row.wide}"
    moved, moved_before = row.loaded + row.stored, before.loaded + before.stored
    if moved_before and (not moved or row.instructions / moved >
                         _INSTRUCTIONS_MARGIN * before.instructions / moved_before):
        yield (f"main path {before.instructions} instructions for {moved_before} bytes -> "
               f"{row.instructions} for {moved}")


def check(rows, committed, all_families, all_excuses):
    """Lines that say what is wrong; empty if nothing is. The four belong to the same source files."""
    for row in rows:
        where = f"{row.source}: {row.kernel}"
        for rule, what in broken(row, all_families):
            allowed = [e for e in all_excuses if e.rule == rule and e.covers(row)]
            for excuse in allowed:
                excuse.used = True
            if not allowed:
                yield f"{where}: {what} [{rule}]"
        before = committed.get((row.source, row.kernel))
        if before is None:
            yield f"{where}: not in the committed figures"
        else:
            for change in worse(row, before):
                yield f"{where}: {change}"
    present = {(r.source, r.kernel) for r in rows}
    for source, kernel in committed:
        if (source, kernel) not in present:
            yield f"{source}: {kernel}: in the committed figures only"
    for family in all_families:
        if not any(family.holds(row) for row in rows):
            yield f"families.tsv: no kernel is of the family '{family.title}' any more ({family.source}: {family.kernel})"
    for excuse in all_excuses:
        if not excuse.used:
            yield f"exceptions.tsv: no kernel needs '{excuse.rule} {excuse.source} {excuse.kernel}' any more"
