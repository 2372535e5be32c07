"""The events that firn-report writes of a training, read by TensorBoard. Run by scripts/interop tensorboard."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # no files beside the sources
import small_run  # noqa: E402

READ_BACK = pathlib.Path(__file__).resolve().parent.parent / "report" / "read_back.py"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--characters", required=True, help="a finished sample")
    parser.add_argument("--report", required=True, help="a finished firn-report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        log = folder / "run.jsonl"
        small_run.train(options.characters, folder, "--log", log, "--log-every", "1")
        subprocess.run([options.report, log, "--tensorboard", folder / "events"], check=True, stdout=subprocess.DEVNULL)
        events = list((folder / "events").glob("events.out.tfevents.*"))
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        skipped = sum(r.get("applied") is False for r in records)
        print(f"{len(records)} records, {skipped} of skipped steps, {len(events)} file of events")
        wrong = not 0 < skipped < len(records) // 2 or len(events) != 1 or subprocess.run([sys.executable, READ_BACK, "tensorboard", events[0], log],
                                                   check=False).returncode != 0
    print("interop: differences" if wrong else "interop: all equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
