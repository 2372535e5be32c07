"""What a kernel must keep to, beside the figures that are in the repository."""
import dataclasses
import fnmatch
import re

from .figures import BUDGET

# By how much a figure may get worse unseen: the compiler's noise when a line nearby changes.
_MARGINS = {"registers": 8, "occupancy": 0, "stack": 0, "spills": 0, "shared": 1024,
            "local_in_loop": 0, "f64_in_loop": 0, "narrow_in_loop": 0, "unfenced": 0}
_INSTRUCTIONS_MARGIN = 1.05


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


def table(path):
    """Fields of the lines that are no comments."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                yield [field.strip() for field in line.rstrip("\n").split("\t") if field.strip()]


def families(path):
    return [Family(title, source, kernel, int(loads), int(stores), float(share))
            for title, source, kernel, loads, stores, share in table(path)]


def excuses(path):
    return [Excuse(*fields) for fields in table(path)]


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
    """Lines that say what is wrong; empty if nothing is."""
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
