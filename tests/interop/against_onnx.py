"""Models that firn has exported, checked by PyPI's onnx and run by its onnxruntime: the outputs agree with
firn's at the batch of the export and at others. Run by scripts/interop onnx."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime


def difference(ours, theirs):
    """The largest difference relative to the largest element; infinite if shapes, dtypes or NaNs differ."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return numpy.inf
    if ours.size == 0:
        return 0.0
    if ours.dtype.kind != "f":
        return 0.0 if numpy.array_equal(ours, theirs) else numpy.inf
    a, b = ours.astype(numpy.float64), theirs.astype(numpy.float64)
    odd = ~numpy.isfinite(a)
    if not numpy.array_equal(a[odd], b[odd], equal_nan=True):
        return numpy.inf
    a, b = numpy.where(odd, 0, a), numpy.where(odd, 0, b)
    return float(numpy.max(numpy.abs(a - b)) / max(numpy.max(numpy.abs(a)), 1e-30))


def check(folder, name, tolerance, batches, ins, outs):
    """The model's line of the table, and what is wrong with it."""
    path = folder / f"{name}.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17, model.opset_import
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    dynamic = [i.name for i in session.get_inputs() if i.shape and i.shape[0] == "batch"]
    wrong = [] if len(dynamic) == ins else [f"inputs with a symbolic batch: {dynamic} of {ins}"]
    worst = 0.0
    for batch in batches:
        load = lambda what, i: numpy.load(folder / f"{name}.{batch}.{what}.{i}.npy")
        feed = {x.name: load("in", i) for i, x in enumerate(session.get_inputs())}
        try:
            results = session.run(None, feed)
        except Exception as error:
            wrong.append(f"batch {batch}: {error}")
            continue
        assert len(results) == outs
        for i, theirs in enumerate(results):
            ours = load("out", i)
            error = difference(ours, theirs)
            if i == 0 and batch == "7" and (ours == ours[:1]).all():
                wrong.append("every row has the same result, so inputs have no part in it")
            worst = max(worst, error)
            if not error <= tolerance:
                wrong.append(f"batch {batch}, {session.get_outputs()[i].name}: {error:.2e} "
                             f"(firn {ours.dtype}{list(ours.shape)}, onnxruntime {theirs.dtype}{list(theirs.shape)})")
    return len(model.graph.node), worst, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True, help="a finished firn_onnx_models")
    parser.add_argument("--keep", help="the folder for the files, which stay there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        run = subprocess.run([options.models, str(folder)], stdout=subprocess.PIPE, text=True)
        failed = run.returncode != 0
        print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
        print(f"{'model':18} {'nodes':>5} {'batches':>8} {'outputs':>7} {'difference':>10}  allowed")
        for line in run.stdout.splitlines():
            name, tolerance, batches, ins, outs = line.split()
            try:
                nodes, worst, wrong = check(folder, name, float(tolerance), batches.split(","), int(ins), int(outs))
            except Exception as error:
                nodes, worst, wrong = 0, numpy.inf, [f"{type(error).__name__}: {error}"]
            print(f"{name:18} {nodes:5} {batches:>8} {outs:>7} {worst:10.1e}  {tolerance}")
            for text in wrong:
                print(f"  {name}: {text}")
            failed = failed or bool(wrong)
    print("interop: differences" if failed else "interop: all equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
