#!/usr/bin/env python3
"""scripts/kernel-report as it is typed: its words and its exit status for builds, files and arguments that are
not as they should be. Compiler, cuobjdump and nvdisasm are made up: an object is the text of its machine code.
   command.py SCRIPTS"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(sys.argv.pop(1))

NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"
CUOBJDUMP = """#!/bin/sh
if [ "$1" = -res-usage ]; then
  sed -n 's/^#/ /p' "$2"
elif grep -q garbage "$3"; then
  echo "cuobjdump fatal: not a CUDA object" >&2
  exit 255
else
  cp "$3" ./made_up.cubin
fi
"""
NVDISASM = "#!/bin/sh\nexec cat \"$1\"\n"

LOOP = [".L_x_1:", "LDG.E.128 R4, [R2.64]", "STG.E.128 [R6.64], R4", "@P0 BRA `(.L_x_1)", "EXIT"]
SPILLS = [LOOP[0], "STL [R1], R2", *LOOP[1:]]
F64 = [LOOP[0], "DADD R2, R2, R4", *LOOP[1:]]


def machine_code(**kernels):
    """The text that stands for an object file."""
    text = ""
    for name, lines in kernels.items():
        symbol = f"_Z{len(name)}{name}v"
        text += f"#Function {symbol}:\n#REG:40 STACK:0 SHARED:1024\n"
        text += f"//--------------------- .text.{symbol} --------------------------\n"
        for n, line in enumerate(lines):
            text += line + "\n" if line.endswith(":") else f"        /*{16 * n:04x}*/                   {line} ;\n"
    return text


class Command(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.root = pathlib.Path(made.name).resolve()
        (self.root / "scripts").mkdir()
        shutil.copy(SCRIPTS / "kernel-report", self.root / "scripts")
        shutil.copytree(SCRIPTS / "kernel_report", self.root / "scripts/kernel_report",
                        ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "bin").mkdir()
        for name, text in (("nvcc", NVCC), ("cuobjdump", CUOBJDUMP), ("nvdisasm", NVDISASM)):
            self.put(f"bin/{name}", text).chmod(0o755)
        self.put("docs/gpu.md", "# A page\n<!-- kernel-report -->\n<!-- end of kernel-report -->\nits end\n")
        self.put("scripts/kernel_report/kept/families.tsv", "copies\trows/copy\tcopy.*\t1\t1\t0.9\n")
        self.put("scripts/kernel_report/kept/exceptions.tsv", "")
        for name in ("rows/copy", "rows/sum"):
            self.put(f"kernels/cuda/{name}.cu", "")
        self.configure()
        self.build("rows/copy", copy=LOOP, copy_back=LOOP)
        self.build("rows/sum", sum=LOOP)
        self.says(0, "copies | 2 | 0 |", "--write")
        self.says(0, "3 kernels, 0 findings, nvcc 13.0.88, sm_90")

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def configure(self, architectures="90", cuda="ON", nvcc="nvcc"):
        self.put("build/default/CMakeCache.txt",
                 f"CMAKE_CUDA_ARCHITECTURES:STRING={architectures}\nFIRN_CUDA:STRING={cuda}\n"
                 f"CMAKE_CUDA_COMPILER:FILEPATH={self.root / 'bin' / nvcc}\n")

    def object_of(self, source):
        return f"build/default/src/CMakeFiles/firn_core.dir/__/kernels/cuda/{source}.cu.o"

    def build(self, source, **kernels):
        return self.put(self.object_of(source), machine_code(**kernels))

    def says(self, status, words, *arguments, path=None):
        """Runs it, with --check if nothing is given; what it said."""
        done = subprocess.run([self.root / "scripts/kernel-report", *(arguments or ["--check"])], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env=dict(os.environ, PATH=path or f"{self.root / 'bin'}:{os.environ['PATH']}"))
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertIn(words, done.stdout)
        self.assertNotIn("Traceback", done.stdout)
        return done.stdout

    # ---- A kernel that got worse ----

    def test_a_finding_names_kernel_figure_rule_and_ways_out(self):
        for code, what, figure in ((SPILLS, "1 accesses to local memory in loops, 0 bytes of spills [local]", "local_in_loop"),
                                   (F64, "1 f64 operations in loops [f64]", "f64_in_loop")):
            self.build("rows/copy", copy=code, copy_back=LOOP)
            said = self.says(1, f"rows/copy: copy: {what}")
            self.assertIn(f"rows/copy: copy: {figure} 0 -> 1\n", said)
            self.assertIn("rows/copy: copy: main path 3 instructions for 32 bytes -> 4 for 32\n", said)
            self.assertIn("3 kernels, 3 findings", said)
            self.assertIn("The code: scripts/kernel-report --code 'copy' --source rows/copy\n", said)
            self.assertIn("a line in scripts/kernel_report/kept/exceptions.tsv", said)
            self.assertIn("scripts/kernel-report --write", said)
            self.assertEqual(said.count("\n  ["), 1)  # one explanation for one rule
            self.says(1, "rows/copy: copy:", "--check", "--source", "rows/*")
            self.says(0, "1 kernels, 0 findings", "--check", "--source", "rows/sum")

    def test_the_code_of_a_kernel_with_what_breaks_a_rule_elsewhere(self):
        self.build("rows/copy", copy=[*LOOP[:-1], ".L_x_2:", "DADD R2, R2, R4", "@P0 BRA `(.L_x_2)", "EXIT"])
        said = self.says(0, "rows/copy: copy: 3 instructions, 16 bytes loaded, 16 stored", "--code", "copy")
        self.assertIn("beside that path\n         DADD R2, R2, R4\n", said)
        self.says(2, "no kernel for sm_90 is called 'cpy'", "--code", "cpy")

    def test_kernels_that_come_and_go_also_with_their_file(self):
        self.build("rows/sum", total=LOOP)
        said = self.says(1, "rows/sum: total: not in the committed figures")
        self.assertIn("rows/sum: sum: in the committed figures only", said)
        self.build("rows/sum")
        self.says(1, "rows/sum: sum: in the committed figures only")
        for file in ("kernels/cuda/rows/sum.cu", self.object_of("rows/sum")):
            (self.root / file).unlink()
        self.says(1, "rows/sum: sum: in the committed figures only")

    def test_a_family_that_lost_its_kernels(self):
        self.build("rows/copy", twin=LOOP)
        self.says(0, "copies | 0 | 0 |", "--write")
        self.says(1, "families.tsv: no kernel is of the family 'copies' any more")

    # ---- What is there to report on ----

    def test_builds_that_cannot_be_read_are_skipped(self):
        self.says(77, "nowhere is no build folder; cmake --preset default", "--check", "--build", str(self.root / "nowhere"))
        self.configure(architectures="80")
        self.says(77, "build/default has no code for sm_90, but for 80; configure with")
        self.configure(architectures="80-real;90")
        self.says(0, "0 findings")
        for cuda in ("OFF", "SIM"):
            self.configure(cuda=cuda)
            self.says(77, "build/default has no CUDA")
        self.configure(nvcc="gone")
        self.says(77, "does not say its version")
        self.configure()
        self.put("bin/nvcc", NVCC.replace("13.0.88", "13.1.1"))
        self.says(77, "those of nvcc 13.0.88, sm_90, and this is nvcc 13.1.1, sm_90")

    @unittest.skipIf(pathlib.Path("/usr/local/cuda/bin/nvdisasm").exists(), "the toolkit's tools are found in any case")
    def test_missing_tools_are_skipped(self):
        (self.root / "bin/nvdisasm").unlink()
        for name in ("python3", "env", "sh", "cp", "sed", "grep"):
            (self.root / "bin" / name).symlink_to(shutil.which(name))
        self.says(77, "no nvdisasm; scripts/setup kernel-report installs it", "--check", path=str(self.root / "bin"))
        self.put("bin/nvdisasm", NVDISASM.replace("exec cat", "exec /bin/cat")).chmod(0o755)
        self.says(2, "c++filt does not run", "--check", path=str(self.root / "bin"))

    def test_what_is_not_built_or_built_before_a_change(self):
        (self.root / self.object_of("rows/sum")).unlink()
        said = self.says(77, "build/default is not built: 1 of 2 objects are missing (rows/sum)")
        self.assertIn("cmake --build build/default --target firn", said)
        self.says(0, "2 kernels, 0 findings", "--check", "--source", "rows/copy")
        made = self.build("rows/sum", sum=LOOP)
        os.utime(made, (1, 1))
        self.says(2, "rows/sum was built before kernels/cuda/rows/sum.cu changed; cmake --build build/default")
        os.utime(self.root / "kernels/cuda/rows/sum.cu", (1, 1))
        self.says(0, "0 findings")
        header = self.put("kernels/cuda/rows/driver.cuh", "")
        made.with_name(made.name + ".d").write_text(f"{made}: \\\n  {header.with_name('sum.cu')} \\\n  {header}\n")
        self.says(2, "rows/sum was built before kernels/cuda/rows/driver.cuh changed")

    def test_an_object_that_is_none(self):
        self.put(self.object_of("rows/sum"), "garbage")
        self.says(2, "not a CUDA object")
        self.build("rows/sum")
        self.says(2, "rows/sum: no kernel has code for sm_90", "--check", "--source", "rows/sum")
        self.says(2, "sum: no kernel has code for sm_90", "--check", "--objects", str(self.root / self.object_of("rows/sum")))

    # ---- Arguments and files ----

    def test_arguments(self):
        self.says(2, "no source is called 'nonsense': rows/copy, rows/sum", "--check", "--source", "nonsense")
        self.says(2, "--write is for all kernels", "--write", "--source", "rows/sum")
        self.says(2, "not allowed with", "--check", "--write")

    def test_damaged_figures(self):
        path = self.root / "scripts/kernel_report/kept/figures.tsv"
        whole = path.read_text()
        for text, words in ((whole[:-30], "figures.tsv:6: "), (whole[:-1], "figures.tsv:6: the file ends in the middle"),
                            ("", "does not begin with"), (whole.replace("\tregisters", ""), "the names of 16 columns"),
                            (whole.replace("\t40\t", "\tforty\t", 1), "figures.tsv:4: ")):
            path.write_text(text)
            said = self.says(2, words)
            self.assertIn(f"git checkout {path}, or --write makes it anew", said)
        path.unlink()
        self.says(2, "figures.tsv cannot be read")

    def test_damaged_tables(self):
        for name, line, words in (
                ("exceptions", "local rows/sum sum why", ":1: 1 fields in place of 4, which tabs separate: rule, source"),
                ("exceptions", "local\trows/sum\tsum", ":1: 3 fields in place of 4"),
                ("exceptions", "lokal\trows/sum\tsum\twhy", ":1: there is no rule 'lokal': local, f64, narrow, fence, budget"),
                ("families", "copies\trows/copy\tcopy(\t1\t1\t0.9", ":1: missing )"),
                ("families", "copies\trows/copy\tcopy\tone\t1\t0.9", ":1: invalid literal"),
                ("families", "copies\trows/copy\tcopy\t1\t1\t0", ":1: a share of 0")):
            path = self.root / f"scripts/kernel_report/kept/{name}.tsv"
            before = path.read_text()
            path.write_text(line + "\n")
            self.says(2, words)
            path.write_text(before)


if __name__ == "__main__":
    unittest.main()
