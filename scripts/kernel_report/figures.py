"""What the report says of one kernel, and the table of all of them."""
import dataclasses
import re
import subprocess

from . import loops
from .machine_code import BadInput

# sm_90: what a multiprocessor has (CUDA C++ Programming Guide, technical specifications).
_REGISTERS, _WARPS, _BLOCKS, _SHARED = 65536, 64, 32, 233472
# Lane instructions a byte at the rate of a copy: 132 SMs x 128 lanes x 1.98 GHz, 4.3 TB/s measured.
BUDGET = 132 * 128 * 1.98e9 / 4.3e12
_F64 = {"DFMA", "DADD", "DMUL", "DSETP", "DMNMX"}
LAUNCH_THREADS = 256  # of kernels without __launch_bounds__


@dataclasses.dataclass
class Figures:
    source: str  # "rows/softmax"
    kernel: str  # "softmax_kernel<WarpTeam, 4, __half>"
    registers: int
    stack: int  # bytes a thread
    spills: int  # bytes a thread stores because registers are missing
    shared: int  # static, bytes a block
    threads: int  # of a block
    occupancy: int  # per cent of a multiprocessor's warps
    wide: int  # 128-bit accesses to global memory
    local_in_loop: int  # accesses to local memory in loops
    f64_in_loop: int  # f64 arithmetic in loops
    narrow_in_loop: int  # 16-bit loads beside 128-bit accesses, on the main path of a loop
    unfenced: int  # tickets without a fence before and after
    instructions: int  # on the main path
    loaded: int  # bytes, on the main path, a thread
    stored: int


NUMBERS = [f.name for f in dataclasses.fields(Figures)][2:]


def occupancy(registers, threads, shared):
    warps = -(-threads // 32)
    by_registers = _REGISTERS // (-(-registers * 32 // 256) * 256) // warps if registers else _BLOCKS
    by_shared = _SHARED // max(shared, 1)
    blocks = min(by_registers, by_shared, _BLOCKS, _WARPS // warps)
    return 100 * blocks * warps // _WARPS


def _unfenced(code):
    """Tickets are counters that tell a kernel's last block (is_last_block). What other blocks wrote is
    visible only between two fences."""
    names = [i.name for i in code]
    fence = [n for n, name in enumerate(names) if name.startswith("MEMBAR") and name.endswith("GPU")]
    tickets = [n for n, name in enumerate(names) if re.match(r"ATOMG?\.E\.(ADD|INC)\.", name)]
    return sum(1 for t in tickets if not (any(f < t for f in fence) and any(f > t for f in fence)))


def is_suspect(i):
    """Whether a loop had better not have it: local memory, f64 arithmetic."""
    return i.base in ("LDL", "STL") or i.base in _F64


def _narrow(path):
    """16-bit loads beside 128-bit accesses, unless they are few, such as the end of a row."""
    narrow = sum(loops.is_load(i) and loops.width(i) == 2 for i in path)
    bytes_moved = sum(map(loops.moved, path))
    return narrow if any(loops.moved(i) == 16 for i in path) and 2 * narrow * 8 > bytes_moved else 0


def main_path(kernel):
    """The path of the loop that moves most bytes in 128-bit accesses; without those, most bytes. A loop
    that joins partial sums one by one may be unrolled further than the one over the data."""
    blocks = loops.basic_blocks(kernel.code)
    found = loops.find_loops(blocks)
    paths = [loops.fast_path(blocks, l) for l in found]

    def weight(path):
        moved = [loops.moved(i) for i in path]
        return moved.count(16), sum(moved)

    return blocks, found, paths, max(paths, key=weight, default=[])


def of_kernel(source, name, kernel):
    blocks, found, paths, path = main_path(kernel)
    code = [i for b in blocks for i in b.code]
    looped = [i for l in found for i in loops.instructions(blocks, l)]
    once = {id(i): i for i in looped}.values()  # not once more for each loop around it
    threads = kernel.threads or LAUNCH_THREADS
    return Figures(
        source=source, kernel=name, registers=kernel.registers, stack=kernel.stack,
        spills=sum(loops.width(i) for i in code if i.spill and i.base == "STL"),
        shared=kernel.shared, threads=threads,
        occupancy=occupancy(kernel.registers, threads, kernel.shared),
        wide=sum(loops.moved(i) == 16 for i in code),
        local_in_loop=sum(i.base in ("LDL", "STL") for i in once),
        f64_in_loop=sum(i.base in _F64 for i in once),
        narrow_in_loop=max(map(_narrow, paths), default=0),
        unfenced=_unfenced(code), instructions=len(path),
        loaded=sum(loops.width(i) for i in path if loops.is_load(i)),
        stored=sum(loops.width(i) for i in path if loops.is_store(i)))


def readable(symbols):
    """Names without namespaces, return type and parameters."""
    try:
        done = subprocess.run(["c++filt"], input="\n".join(symbols), text=True, capture_output=True, check=True)
    except OSError as why:
        raise BadInput(f"c++filt does not run ({why}); it is a part of binutils") from None
    names = []
    for text in done.stdout.splitlines()[:len(symbols)]:
        text = re.sub(r"firn::(kernels::|math::|cuda::|\(anonymous namespace\)::|_GLOBAL__N__\w+::)*", "", text)
        text = text.removeprefix("void ")
        depth, end = 0, len(text)
        for n in range(len(text) - 1, -1, -1) if text.endswith(")") else ():
            depth += (text[n] == ")") - (text[n] == "(")
            if depth == 0:
                end = n
                break
        names.append(text[:end].replace("> >", ">>"))
    return names


def write(path, version, rows):
    rows = sorted(rows, key=lambda r: (r.source, r.kernel))
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"# Made by scripts/kernel-report --write. Columns: scripts/kernel_report/figures.py.\n# {version}\n")
        out.write("\t".join(["source", "kernel", *NUMBERS]) + "\n")
        for r in rows:
            out.write("\t".join(str(v) for v in dataclasses.astuple(r)) + "\n")


def read(path):
    """The version line, and the rows by (source, kernel)."""
    again = f"; git checkout {path}, or --write makes it anew"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise BadInput(f"{path} cannot be read: {why}{again}") from None
    lines = text.splitlines()
    columns = ["source", "kernel", *NUMBERS]
    if len(lines) < 3 or not lines[1].startswith("# ") or lines[2].split("\t") != columns:
        raise BadInput(f"{path} does not begin with two comments and the names of {len(columns)} columns{again}")
    rows = {}
    for number, line in enumerate(lines[3:], start=4):
        fields = line.split("\t")
        if len(fields) != len(columns) or not all(f.isdecimal() for f in fields[2:]):
            raise BadInput(f"{path}:{number}: {len(fields)} fields in place of two names and {len(NUMBERS)} numbers{again}")
        rows[fields[0], fields[1]] = Figures(*fields[:2], *map(int, fields[2:]))
    if not text.endswith("\n"):
        raise BadInput(f"{path}:{len(lines)}: the file ends in the middle of a line{again}")
    return lines[1].removeprefix("# "), rows
