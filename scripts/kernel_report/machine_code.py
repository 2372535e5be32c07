"""Reads compiled kernels: the machine code (SASS) that ptxas made for one architecture, and what the
driver is told about each kernel. cuobjdump takes the code out of an object file, nvdisasm prints it."""
import dataclasses
import pathlib
import re
import subprocess
import tempfile


class BadInput(Exception):
    """A file that cannot be read, or a program that fails on it; the text says which and what to do."""


@dataclasses.dataclass
class Instruction:
    guard: str  # "@P0", "@!UP1" or ""
    name: str  # "LDG.E.128.CONSTANT"
    operands: str
    spill: bool  # nvdisasm calls it a spill or its refill

    @property
    def base(self):
        return self.name.split(".")[0]

    @property
    def target(self):
        """The label that it may go to, or None."""
        found = re.search(r"`\((\.L_x_\d+|\$[^)]*)\)", self.operands)
        return found.group(1) if found else None


@dataclasses.dataclass
class Kernel:
    symbol: str
    code: list  # of labels (str) and Instructions
    registers: int = 0
    stack: int = 0  # bytes a thread
    shared: int = 0  # static, bytes a block
    threads: int = 0  # at most in a block, by __launch_bounds__


_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_SECTION = re.compile(r"^//-+ (\.\S+) -+$")
_MAX_THREADS = re.compile(r"EIATTR_MAX_THREADS.*?\.word\s+(0x[0-9a-f]+)", re.S)


def sections(text):
    """(name, text) of each section that nvdisasm prints."""
    name, lines = "", []
    for line in text.splitlines():
        found = _SECTION.match(line)
        if found:
            yield name, lines
            name, lines = found.group(1), []
        else:
            lines.append(line)
    yield name, lines


def code_of(lines, symbol):
    """Labels and instructions of the kernel itself. Functions that it calls follow it in the same
    section, each behind a label "$symbol$function"."""
    code = []
    for line in lines:
        if line.startswith("$") and line.rstrip().endswith(":"):
            break
        label = _LABEL.match(line)
        if label:
            code.append(label.group(1))
            continue
        found = _INSTRUCTION.match(line)
        if found and found.group(2) != "NOP":
            guard, name, operands = found.groups()
            operands, _, note = operands.partition("(*")
            code.append(Instruction(guard or "", name, operands.strip(), "SpillRefill" in note))
    return code


def parse(disassembly, usage):
    """The kernels of one cubin, from the texts of nvdisasm and cuobjdump -res-usage."""
    kernels = {}
    threads = {}
    for name, lines in sections(disassembly):
        if name.startswith(".text."):
            symbol = name[len(".text."):]
            kernels[symbol] = Kernel(symbol, code_of(lines, symbol))
        elif name.startswith(".nv.info."):
            found = _MAX_THREADS.search("\n".join(lines))
            if found:
                threads[name[len(".nv.info."):]] = int(found.group(1), 16)
    for symbol, registers, stack, shared in re.findall(
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", usage):
        if symbol in kernels:
            k = kernels[symbol]
            k.registers, k.stack, k.shared = int(registers), int(stack), int(shared)
            k.threads = threads.get(symbol, 0)
    return [k for k in kernels.values() if k.registers]


class Tools:
    """cuobjdump and nvdisasm."""

    def __init__(self, cuobjdump, nvdisasm):
        self.cuobjdump, self.nvdisasm = cuobjdump, nvdisasm

    def _run(self, *command, cwd=None):
        done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}")[:500]
            raise BadInput(f"{pathlib.Path(command[0]).name} cannot read {command[-1]}: {said}")
        return done.stdout

    def kernels(self, object_file, arch):
        """The kernels of an object file for "sm_90"; none if it has no code for that."""
        with tempfile.TemporaryDirectory() as folder:
            self._run(self.cuobjdump, "-xelf", arch, pathlib.Path(object_file).resolve(), cwd=folder)
            found = []
            for cubin in sorted(pathlib.Path(folder).glob("*.cubin")):
                found += parse(self._run(self.nvdisasm, cubin), self._run(self.cuobjdump, "-res-usage", cubin))
            return found
