#!/usr/bin/env python3
"""What scripts/kernel-report reads out of machine code, on code that is made up.   made_up.py SCRIPTS"""
import dataclasses
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
from kernel_report import figures, loops, machine_code, rules  # noqa: E402

SYMBOL = "_ZN4firn7kernels4cuda12_GLOBAL__N__copy_kernelIfEEvPKfPfl"
INFO = f"""//--------------------- .nv.info.{SYMBOL} --------------------------
	.section	.nv.info.{SYMBOL},"",@"SHT_CUDA_INFO"
	//----- nvinfo : EIATTR_MAX_THREADS
	.align		4
        /*0000*/ 	.byte	0x04, 0x05
        /*0004*/ 	.word	0x00000200
"""
USAGE = f""" Function {SYMBOL}:
  REG:40 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def kernel(*lines):
    """A kernel of these lines: labels end with a colon."""
    text = INFO + f"//--------------------- .text.{SYMBOL} --------------------------\n"
    for n, line in enumerate(lines):
        text += line + "\n" if line.endswith(":") else f"        /*{16 * n:04x}*/                   {line} ;\n"
    return machine_code.parse(text, USAGE)[0]


def figures_of(*lines, name="kernel<__half>"):
    return figures.of_kernel("folder/file", name, kernel(*lines))


# A loop over packs of 16 bytes, with a slow way that loads one number at a time.
COPY = ["S2R R0, SR_TID.X", ".L_x_1:", "@P1 BRA `(.L_x_2)", "LDG.E.128 R4, [R2.64]", "BRA `(.L_x_3)",
        ".L_x_2:", "LDG.E.U16 R4, [R2.64]", "@P2 LDG.E.U16.CONSTANT R5, [R2.64+0x2]", ".L_x_3:",
        "FMUL R4, R4, 2", "STG.E.128 [R6.64], R4", "@P0 BRA `(.L_x_1)", "EXIT", "NOP"]


class MachineCode(unittest.TestCase):
    def test_what_the_driver_is_told(self):
        k = kernel(*COPY)
        self.assertEqual((k.registers, k.stack, k.shared, k.threads), (40, 16, 1024, 512))

    def test_guards_names_targets(self):
        k = kernel("@!P0 BRA P3, `(.L_x_7)", ".L_x_7:", 'STL.64 [R1], R2                (*"SpillRefill"*)', "EXIT")
        branch, label, store, _ = k.code
        self.assertEqual((branch.guard, branch.base, branch.target, label), ("@!P0", "BRA", ".L_x_7", ".L_x_7"))
        self.assertTrue(store.spill and not branch.spill)
        self.assertEqual((store.operands, loops.width(store)), ("[R1], R2", 8))

    def test_functions_behind_a_kernel_are_not_its_code(self):
        k = kernel("CALL.REL.NOINC `($slow)", "EXIT", f"${SYMBOL}$slow:", "DADD R2, R2, R4", "RET.REL.NODEC R4")
        self.assertEqual([i.base for i in k.code], ["CALL", "EXIT"])


class Loops(unittest.TestCase):
    def blocks(self, *lines):
        blocks = loops.basic_blocks(kernel(*lines).code)
        return blocks, loops.find_loops(blocks)

    def test_the_path_that_moves_most_bytes(self):
        blocks, found = self.blocks(*COPY)
        self.assertEqual(len(found), 1)
        self.assertEqual([i.base for i in loops.fast_path(blocks, found[0])],
                         ["BRA", "LDG", "BRA", "FMUL", "STG", "BRA"])

    def test_of_ways_that_move_the_same_the_one_with_wide_accesses(self):
        singly = ["LDG.E.U16 R4, [R2.64]"] * 8
        blocks, found = self.blocks(".L_x_1:", "@P1 BRA `(.L_x_2)", "LDG.E.128 R4, [R2.64]", "BRA `(.L_x_3)",
                                    ".L_x_2:", *singly, ".L_x_3:", "@P0 BRA `(.L_x_1)", "EXIT")
        self.assertEqual([i.name for i in loops.fast_path(blocks, found[0])][1], "LDG.E.128")

    def test_of_those_the_longest(self):
        blocks, found = self.blocks(".L_x_1:", "LDG.E R4, [R2.64]", "@P1 BRA `(.L_x_2)", "FMUL R4, R4, 2",
                                    ".L_x_2:", "@P0 BRA `(.L_x_1)", "EXIT")
        self.assertEqual(len(loops.fast_path(blocks, found[0])), 4)

    def test_a_loop_in_a_loop(self):
        blocks, found = self.blocks(".L_x_1:", "LDG.E R4, [R2.64]", ".L_x_2:", "FMUL R4, R4, 2",
                                    "@P1 BRA `(.L_x_2)", "STG.E [R2.64], R4", "@P0 BRA P2, `(.L_x_1)", "EXIT")
        outer = max(found, key=lambda l: len(l.blocks))
        self.assertEqual([len(l.inner) for l in found if l is outer], [1])
        self.assertEqual(len(loops.fast_path(blocks, outer)), 5)

    def test_a_slow_way_for_parted_warps_is_no_loop(self):
        _, found = self.blocks(".L_x_1:", "FMUL R4, R4, 2", "BRA.DIV ~URZ, `(.L_x_1)", "EXIT")
        self.assertEqual(found, [])


class Figures(unittest.TestCase):
    def test_of_a_copy(self):
        row = figures_of(*COPY)
        self.assertEqual((row.wide, row.instructions, row.loaded, row.stored), (2, 6, 16, 16))
        self.assertEqual((row.narrow_in_loop, row.f64_in_loop, row.local_in_loop, row.unfenced), (0, 0, 0, 0))

    def test_the_loop_over_the_data_not_one_that_joins_partial_sums(self):
        joins = [".L_x_2:", *["LDG.E R4, [R2.64]"] * 8, "DADD R4, R4, R6", "@P0 BRA `(.L_x_2)", "EXIT"]
        row = figures_of(".L_x_1:", "LDG.E.128 R4, [R2.64]", "FMUL R4, R4, 2", "@P0 BRA `(.L_x_1)", *joins)
        self.assertEqual((row.instructions, row.loaded), (3, 16))
        self.assertEqual(figures_of(*joins).loaded, 32)

    def test_narrow_loads(self):
        loop = [".L_x_1:", "LDG.E.128 R4, [R2.64]", "@P0 BRA `(.L_x_1)", "EXIT"]
        self.assertEqual(figures_of(loop[0], "LDG.E.U16 R4, [R2.64]", *loop[1:]).narrow_in_loop, 0)
        self.assertEqual(figures_of(loop[0], *["LDG.E.U16 R4, [R2.64]"] * 2, *loop[1:]).narrow_in_loop, 2)

    def test_occupancy(self):
        self.assertEqual(figures.occupancy(registers=32, threads=256, shared=1024), 100)
        self.assertEqual(figures.occupancy(registers=33, threads=256, shared=1024), 75)  # in steps of 8
        self.assertEqual(figures.occupancy(registers=255, threads=128, shared=1024), 12)
        self.assertEqual(figures.occupancy(registers=32, threads=256, shared=100000), 25)
        self.assertEqual(figures.occupancy(registers=16, threads=32, shared=1024), 50)  # 32 blocks

    def test_tickets_and_fences(self):
        fence, ticket = "MEMBAR.SC.GPU", "ATOMG.E.ADD.STRONG.GPU PT, R4, [R2.64], R5"
        self.assertEqual(figures_of(fence, ticket, fence, "EXIT").unfenced, 0)
        self.assertEqual(figures_of(ticket, fence, "EXIT").unfenced, 1)
        self.assertEqual(figures_of(fence, ticket, "EXIT").unfenced, 1)
        self.assertEqual(figures_of("MEMBAR.SC.CTA", ticket, fence, "EXIT").unfenced, 1)

    def test_readable_names(self):
        file = "_GLOBAL__N__da71cc53_4_t_cu_b5d13687"  # nvcc's name of a file's own namespace
        symbols = [f"_ZN4firn7kernels4cuda{len(file)}{file}11copy_kernelI6__halfEEvPKT_PS3_l",
                   f"_ZN4firn7kernels4cuda{len(file)}{file}3addILi4EEEvPf"]
        self.assertEqual(figures.readable(symbols), ["copy_kernel<__half>", "add<4>"])

    def test_a_table_comes_back(self):
        row = figures_of(*COPY)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "figures.tsv"
            figures.write(path, "nvcc 1", [row])
            self.assertEqual(figures.read(path), ("nvcc 1", {("folder/file", "kernel<__half>"): row}))


class Rules(unittest.TestCase):
    def found(self, row, families=(), excuses=(), before=None):
        return list(rules.check([row], {(row.source, row.kernel): before or row}, families, list(excuses)))

    def test_each_rule(self):
        row = figures_of(*COPY)
        self.assertEqual(self.found(row), [])
        for change, rule in [({"local_in_loop": 1}, "local"), ({"f64_in_loop": 2}, "f64"),
                             ({"narrow_in_loop": 4}, "narrow"), ({"unfenced": 1}, "fence")]:
            bad = dataclasses.replace(row, **change)
            self.assertEqual([line.endswith(f"[{rule}]") for line in self.found(bad)], [True], rule)
            excuse = rules.Excuse(rule, "folder/file", "kernel<*", "why")
            self.assertEqual(self.found(bad, excuses=[excuse]), [])
            self.assertTrue(excuse.used)
        self.assertEqual(self.found(figures_of(*COPY, name="kernel<double>")), [])

    def test_the_budget(self):
        row = dataclasses.replace(figures_of(*COPY), instructions=300)
        family = rules.Family("copies", "folder/file", r"kernel<.*", 1, 1, 0.9)
        self.assertAlmostEqual(family.budget, 8.64, places=2)
        self.assertIn("9.4 instructions a byte, budget 8.6 (copies) [budget]", self.found(row, [family])[0])
        self.assertEqual(self.found(dataclasses.replace(row, instructions=250), [family]), [])
        other = dataclasses.replace(family, kernel="kernel")  # the whole name counts
        self.assertEqual(self.found(row, [other]),
                         ["families.tsv: no kernel is of the family 'copies' any more (folder/file: kernel)"])

    def test_an_exception_that_nobody_needs(self):
        excuse = rules.Excuse("f64", "folder/file", "kernel<*", "why")
        self.assertEqual(self.found(figures_of(*COPY), excuses=[excuse]),
                         ["exceptions.tsv: no kernel needs 'f64 folder/file kernel<*' any more"])

    def test_what_gets_worse(self):
        row = figures_of(*COPY)
        for change in [{"registers": 49}, {"occupancy": row.occupancy - 1}, {"stack": 24}, {"spills": 4},
                       {"wide": 1}, {"instructions": 7}]:
            self.assertEqual(len(self.found(dataclasses.replace(row, **change), before=row)), 1, change)
        for change in [{"registers": 48}, {"occupancy": row.occupancy + 1}, {"stack": 8}, {"instructions": 5}]:
            self.assertEqual(self.found(dataclasses.replace(row, **change), before=row), [], change)

    def test_kernels_that_come_and_go(self):
        row = figures_of(*COPY)
        lines = list(rules.check([row], {("folder/file", "gone"): row}, [], []))
        self.assertEqual(lines, ["folder/file: kernel<__half>: not in the committed figures",
                                 "folder/file: gone: in the committed figures only"])


if __name__ == "__main__":
    unittest.main()
