"""The peers of bench/run: LibTorch as the system has it, or PyTorch from PyPI in all of its modes.

A peer has a name, a version, an environment for its programs, and for each work its sides: [(mode, command,
environment)]. All modes print figures with the same names; what a mode computes in is in its name.
"""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE / "torch-venv"
LAST = " channels-last"  # images in that memory format


def cpu_flags():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])


def malloc_environment(threads):
    """No page faults from a trimming malloc, huge pages as firn asks for them."""
    return {"OMP_NUM_THREADS": str(threads), "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def memory_format(mode):
    return {"TORCH_CHANNELS_LAST": "1"} if mode.endswith(LAST) else {}


class LibTorch:
    """The C++ programs of bench/peer, linked to the system's LibTorch at its best on this CPU: OpenBLAS with OpenMP
    threads and the right kernels (it mis-detects some CPUs), AVX-512 where the CPU has it."""
    name = "LibTorch"

    def __init__(self, programs, threads, version):
        self.programs, self.version = programs, version
        self.environment = malloc_environment(threads)
        if "avx512f" in cpu_flags():
            self.environment.update(OPENBLAS_CORETYPE="SkylakeX", ATEN_CPU_CAPABILITY="avx512")
        for folder in sorted(pathlib.Path("/usr/lib").glob("*/openblas-openmp")):
            given = os.environ.get("LD_LIBRARY_PATH")
            self.environment["LD_LIBRARY_PATH"] = f"{folder}:{given}" if given else str(folder)

    def sides(self, work):
        program = self.programs / f"bench_torch_{work.program}"
        return [("C++ f32", [str(program), *work.arguments], self.environment)] if program.exists() else []


class PyTorch:
    """PyPI's torch: the C++ programs linked to the libraries inside the wheel, and bench/peer/torch_modes.py eagerly
    and compiled, in f32 and under bf16 autocast."""
    name = "PyTorch"

    def __init__(self, python, programs, threads, version):
        self.python, self.programs, self.version = python, programs, version
        # Compiling in the process itself, so that its children's time counts as its own.
        self.environment = {**malloc_environment(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}

    def sides(self, work):
        dtypes = ["f32"] if work.precisions == ["f32"] else ["f32", "bf16"]
        found = []
        program = self.programs / f"bench_torch_{work.program}"
        for mode in [f"C++ {d}{layout}" for d in dtypes for layout in work.layouts] if program.exists() else []:
            precision = ["--precision", "bf16"] if "bf16" in mode else []
            found.append((mode, [str(program), *work.arguments, *precision], memory_format(mode)))
        # A program of one work is not told its name; torch_modes.py always is.
        arguments = work.arguments if work.family in work.arguments else [work.family, *work.arguments]
        for mode in [f"{d} {how}{layout}" for d in dtypes for how in work.python for layout in work.layouts]:
            command = [self.python, str(HERE / "peer/torch_modes.py"), *arguments, "--mode", mode.removesuffix(LAST)]
            found.append((mode, command, memory_format(mode)))
        return [(mode, command, {**self.environment, **more}) for mode, command, more in found]


def ask_venv(*how):
    """What bench/torch-venv prints: the Python that has PyTorch; None if it fails."""
    done = subprocess.run([VENV, *how], stdout=subprocess.PIPE, stderr=None if how else subprocess.DEVNULL, text=True,
                          check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def torch_python(yes):
    """The Python of the virtual environment with PyTorch, made if the user agrees; ends the program if not."""
    python = ask_venv()
    if python:
        return python
    what = "PyTorch from PyPI in a virtual environment, several GB on disk (bench/torch-venv --install)"
    if not yes and not sys.stdin.isatty():
        sys.exit(f"bench/run: --peer torch needs {what}; --yes installs it, FIRN_INTEROP_VENV names one that is there")
    if not yes and input(f"Install {what}? [y/N] ").strip().lower() not in ("y", "yes"):
        sys.exit("bench/run: not installed")
    return ask_venv("--install") or sys.exit("bench/run: PyTorch could not be installed")


def torch_of(python):
    """(version, folder of the package) of the torch that this Python imports."""
    code = "import os, torch; print(torch.__version__); print(os.path.dirname(torch.__file__))"
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    version, folder = done.stdout.splitlines()
    return version, pathlib.Path(folder)


def wheel_settings(folder):
    """CMake's, for the headers and libraries inside the wheel. libtorch.so itself would load CUDA's libraries; all that
    the programs call is in libtorch_cpu.so."""
    return [f"-DTORCH_INCLUDE_DIR={folder}/include", f"-DTORCH_LIBRARY={folder}/lib/libtorch_cpu.so",
            f"-DTORCH_CPU_LIBRARY={folder}/lib/libtorch_cpu.so", f"-DC10_LIBRARY={folder}/lib/libc10.so"]
