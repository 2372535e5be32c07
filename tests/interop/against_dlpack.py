"""Tensors of firn in PyTorch and NumPy and the other way round, over DLPack: the same memory, the same
elements, the same strides, and each side lets go. Run by scripts/interop dlpack."""
import argparse
import ctypes
import gc
import sys
import threading

import numpy
import torch

api = ctypes.pythonapi
P, I64, INT, CHARS, OBJECT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p, ctypes.py_object
CAPSULE_END = ctypes.CFUNCTYPE(None, P)
api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = OBJECT, [P, CHARS, CAPSULE_END]
api.PyCapsule_IsValid.restype, api.PyCapsule_IsValid.argtypes = INT, [OBJECT, CHARS]
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = P, [OBJECT, CHARS]
api.PyCapsule_SetName.restype, api.PyCapsule_SetName.argtypes = INT, [OBJECT, CHARS]
# A second view of the same functions for a capsule that is being destroyed, which must not be counted.
is_valid = ctypes.PYFUNCTYPE(INT, P, CHARS)(("PyCapsule_IsValid", api))
pointer_of = ctypes.PYFUNCTYPE(P, P, CHARS)(("PyCapsule_GetPointer", api))

# The bytes must stay where they are: a capsule keeps their address.
NAMES = {True: (b"dltensor_versioned", b"used_dltensor_versioned"), False: (b"dltensor", b"used_dltensor")}
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8,
          torch.bool, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.float8_e5m2]
VIEWS = ["whole", "transposed", "stepped", "part", "scalar", "empty"]
lib = None


def open_library(path):
    global lib
    lib = ctypes.CDLL(path)
    for name, result, arguments in [
            ("error", CHARS, []), ("make", P, [INT, I64, I64]), ("view", P, [P, CHARS]), ("free", None, [P]),
            ("give", P, [P, INT]), ("take", P, [P, INT]), ("delete", None, [P, INT]), ("dtype", INT, [P]),
            ("rank", INT, [P]), ("size", I64, [P, INT]), ("stride", I64, [P, INT]), ("numel", I64, [P]),
            ("address", P, [P]), ("values", P, [P, ctypes.POINTER(ctypes.c_double)]),
            ("fill", P, [P, ctypes.c_double]), ("bytes_in_use", ctypes.c_uint64, [])]:
        function = getattr(lib, "bridge_" + name)
        function.restype, function.argtypes = result, arguments


def checked(result):
    if not result:
        raise BufferError(lib.bridge_error().decode())
    return result


def end_of(wide):
    def end(capsule):
        if is_valid(capsule, NAMES[wide][0]):
            lib.bridge_delete(pointer_of(capsule, NAMES[wide][0]), wide)
    return CAPSULE_END(end)


ENDS = {wide: end_of(wide) for wide in NAMES}


class Firn:
    """A tensor of firn, with the two methods of the protocol."""

    def __init__(self, handle):
        self.handle = checked(handle)

    def __del__(self):
        if getattr(self, "handle", None):
            lib.bridge_free(self.handle)

    @staticmethod
    def make(dtype, rows=4, columns=6):
        return Firn(lib.bridge_make(DTYPES.index(dtype), rows, columns))

    @staticmethod
    def take(x, wide=True):
        capsule = x.__dlpack__(max_version=(1, 0)) if wide else x.__dlpack__()
        name, used = NAMES[wide]
        taken = Firn(lib.bridge_take(api.PyCapsule_GetPointer(capsule, name), wide))
        api.PyCapsule_SetName(capsule, used)  # only now: if firn refuses, the capsule's end gives it back
        return taken

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        wide = max_version is not None and max_version[0] >= 1
        return api.PyCapsule_New(checked(lib.bridge_give(self.handle, wide)), NAMES[wide][0], ENDS[wide])

    def __dlpack_device__(self):
        return (1, 0)

    def view(self, kind):
        return Firn(lib.bridge_view(self.handle, kind.encode()))

    @property
    def dtype(self):
        return DTYPES[lib.bridge_dtype(self.handle)]

    @property
    def shape(self):
        return tuple(lib.bridge_size(self.handle, i) for i in range(lib.bridge_rank(self.handle)))

    @property
    def strides(self):
        return tuple(lib.bridge_stride(self.handle, i) for i in range(lib.bridge_rank(self.handle)))

    @property
    def address(self):
        return lib.bridge_address(self.handle)

    def values(self):
        out = (ctypes.c_double * lib.bridge_numel(self.handle))()
        checked(lib.bridge_values(self.handle, out))
        return list(out)

    def fill(self, value):
        checked(lib.bridge_fill(self.handle, value))


checks = 0


def check(what, condition):
    global checks
    checks += 1
    if not condition:
        raise AssertionError(what)


def refused(what, text, call):
    try:
        call()
    except (BufferError, RuntimeError, ValueError) as e:
        check(f"{what}: said {e}", text in str(e))
        return
    raise AssertionError(f"{what} was not refused")


def values(t):
    return t.flatten().to(torch.float64).tolist()


def same(what, ours, theirs):
    """Of firn and of PyTorch."""
    check(f"{what}: shape {ours.shape} and {tuple(theirs.shape)}", ours.shape == tuple(theirs.shape))
    check(f"{what}: dtype", ours.dtype == theirs.dtype)
    steps = [(a, b) for a, b, n in zip(ours.strides, theirs.stride(), theirs.shape) if n > 1]
    check(f"{what}: strides {steps}", theirs.numel() == 0 or all(a == b for a, b in steps))
    check(f"{what}: address", theirs.numel() == 0 or ours.address == theirs.data_ptr())
    check(f"{what}: values", ours.values() == values(theirs))


def written_on_both_sides(what, ours, theirs):
    ours.fill(1)
    check(f"{what}: a write of firn's", values(theirs) == [1.0] * theirs.numel())
    theirs.fill_(0)
    check(f"{what}: a write of PyTorch's", ours.values() == [0.0] * theirs.numel())


def torch_takes(dtype, kind, wide):
    what = f"firn to PyTorch, {dtype}, {kind}, {'versioned' if wide else 'unversioned'}"
    ours = Firn.make(dtype).view(kind)
    theirs = torch.from_dlpack(ours if wide else ours.__dlpack__())
    same(what, ours, theirs)
    written_on_both_sides(what, ours, theirs)
    del ours  # PyTorch still has the memory
    check(f"{what}: afterwards", values(theirs) == [0.0] * theirs.numel())


def firn_takes(dtype, kind, wide):
    what = f"PyTorch to firn, {dtype}, {kind}, {'versioned' if wide else 'unversioned'}"
    x = torch.arange(24).to(dtype).reshape(4, 6)
    theirs = {"whole": x, "transposed": x.t(), "stepped": x[:, 1::2], "part": x[1:], "scalar": x[1, 2],
              "empty": x[1:1]}[kind]
    ours = Firn.take(theirs, wide)
    same(what, ours, theirs)
    written_on_both_sides(what, ours, theirs)
    x.fill_(1)
    del theirs, x
    check(f"{what}: afterwards", ours.view("copy").values() == [1.0] * lib.bridge_numel(ours.handle))


def numpy_and_firn():
    for dtype in [torch.float16, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool,
                  torch.int8, torch.int16, torch.uint16, torch.uint32]:
        for kind in VIEWS:
            what = f"firn to NumPy, {dtype}, {kind}"
            ours = Firn.make(dtype).view(kind)
            theirs = numpy.from_dlpack(ours)
            check(f"{what}: values", theirs.astype(float).flatten().tolist() == ours.values())
            check(f"{what}: address", theirs.size == 0 or theirs.ctypes.data == ours.address)
            check(f"{what}: strides", theirs.size == 0 or theirs.strides == tuple(
                s * theirs.itemsize for s in ours.strides))
            theirs[...] = 0
            check(f"{what}: a write of NumPy's", ours.values() == [0.0] * theirs.size)
            back = Firn.take(theirs)
            check(f"{what}: and back", back.values() == ours.values())
    x = numpy.arange(12.0).reshape(3, 4)
    ours = Firn.take(x.T[1:])
    check("NumPy to firn: address", ours.address == x.T[1:].ctypes.data)
    x[0, 1] = 50
    check("NumPy to firn: a write of NumPy's", ours.values()[0] == 50)
    x.flags.writeable = False
    copy = Firn.take(x)
    check("read-only: copied", copy.address != x.ctypes.data and copy.values() == x.flatten().tolist())
    copy.fill(-1)
    check("read-only: not written", -1 not in x)
    refused("a negative stride", "negative in strides", lambda: Firn.take(numpy.arange(4.0)[::-1]))
    refused("uint64", "the elements are uint64", lambda: Firn.take(numpy.arange(4, dtype=numpy.uint64)))
    refused("complex", "the elements are complex128", lambda: Firn.take(numpy.zeros(2, complex)))
    wide = Firn.make(torch.float32).view("expanded")
    theirs = numpy.from_dlpack(wide)
    check("an expanded view: read-only in NumPy", not theirs.flags.writeable)
    check("an expanded view: values", theirs.flatten().tolist() == wide.values())
    same("an expanded view in PyTorch", wide, torch.from_dlpack(wide))


def what_is_refused():
    refused("a tensor that requires a gradient", "detach()",
            lambda: torch.from_dlpack(Firn.make(torch.float32).view("requires_grad")))
    refused("9 axes", "it has 9 axes", lambda: Firn.take(torch.zeros([1] * 9)))
    refused("an expanded view, unversioned", "repeats elements",
            lambda: Firn.make(torch.float32).view("expanded").__dlpack__())
    wide = torch.arange(4.0).expand(3, 4)
    ours = Firn.take(wide)
    check("PyTorch's expanded view", ours.strides == (0, 1) and ours.values() == values(wide))
    refused("a write to it", "fill_", lambda: ours.fill(1))


def gradients():
    """A batch of PyTorch's in firn, and firn's result in PyTorch's autograd."""
    x = torch.arange(6.0).reshape(2, 3)
    twice = torch.from_dlpack(Firn.take(x).view("twice"))
    w = torch.ones(3, requires_grad=True)
    (twice * w).sum().backward()
    check("gradients", w.grad.tolist() == [6.0, 10.0, 14.0])


def in_threads():
    def work():
        try:
            for _ in range(100):
                theirs = torch.from_dlpack(Firn.make(torch.float32))
                again = Firn.take(theirs)
                part = torch.from_dlpack(again.view("part"))
                del theirs, again
                if values(part) != [float(v) for v in range(6, 24)]:
                    wrong.append(values(part))
        except Exception as e:
            wrong.append(e)

    wrong = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(f"in threads: {wrong[:1]}", not wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bridge", required=True)
    open_library(parser.parse_args().bridge)
    before = lib.bridge_bytes_in_use()
    for dtype in DTYPES:
        for kind in VIEWS:
            for wide in (True, False):
                torch_takes(dtype, kind, wide)
                firn_takes(dtype, kind, wide)
    numpy_and_firn()
    what_is_refused()
    gradients()
    in_threads()
    capsule = Firn.make(torch.float32).__dlpack__(max_version=(1, 0))
    del capsule  # nobody takes it
    gc.collect()
    check("all memory of firn's is free", lib.bridge_bytes_in_use() == before)
    print(f"interop: DLPack with PyTorch {torch.__version__} and NumPy {numpy.__version__}: {checks} checks, all equal")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as e:
        sys.exit(f"interop: {e}")
