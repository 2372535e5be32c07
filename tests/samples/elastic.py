#!/usr/bin/env python3
"""scripts/train-elastic against kill -9: elastic.py SCRIPT PROGRAM [KILLS]. Ranks of the sample are killed at
random moments, one a job, until one rank is left. The weights at the end must be those of an unbroken run of
one rank. Its errors are tried too."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from small_set import write_set

script, program = sys.argv[1:3]
kills = int(sys.argv[3]) if len(sys.argv) > 3 else 3
RUN = ["--model", "mlp", "--precision", "fp16", "--optimizer", "adamw", "--batch", "32", "--exact", "8", "--epochs", "2",
       "--hash"]


def weights_of(out):
    found = [line for line in out.splitlines() if line.startswith("weights ")]
    assert len(found) == 1, out
    return found[0]


def ranks_of():
    """Processes of the program that a job has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe") == os.path.realpath(program):
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def try_errors():
    def run(*arguments):
        return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
    assert "there is no command" in run("--ranks", "2").stderr
    assert "--least 3" in run("--ranks", "2", "--least", "3", "--", "true").stderr
    assert "cannot be started" in run("--ranks", "2", "--mpirun", "/no/mpirun", "--", "true").stderr
    fails = run("--ranks", "3", "--least", "2", "--", "false")  # an error of its own
    assert fails.returncode != 0 and fails.stderr.count("it goes on with 2") == 1, fails.stderr
    assert "fewer than 2" in fails.stderr, fails.stderr
    # An mpirun that goes on when its ranks have ended.
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as hangs:
        hangs.write("sleep 0.1 & exec sleep 300")
        hangs.flush()
        stuck = run("--ranks", "1", "--mpirun", f"sh {hangs.name}", "--", "true")
        assert stuck.returncode != 0 and "does not end: it is killed" in stuck.stderr, stuck.stderr


def main():
    draw = random.Random(3)
    with tempfile.TemporaryDirectory(prefix="train-elastic-") as top:
        top = pathlib.Path(top)
        write_set(top, 6000, 100)
        base = [program, "--data", str(top), *RUN]
        begin = time.monotonic()
        whole = weights_of(subprocess.run([*base, "--ranks", "1"], capture_output=True, text=True, check=True).stdout)
        seconds = time.monotonic() - begin
        with open(top / "out", "w+", encoding="utf-8") as out:
            job = subprocess.Popen([sys.executable, script, "--ranks", str(kills + 1), "--", *base, "--checkpoint",
                                    str(top / "run"), "--checkpoint-every", "20", "--resume"], stdout=out, stderr=out)
            killed = 0
            while killed < kills and job.poll() is None:
                ranks = ranks_of()
                # On a busy machine a job may be slow to come to its first checkpoint.
                if len(ranks) != kills + 1 - killed or (killed == 0 and not list(top.glob("run/step-*"))):
                    time.sleep(0.02)
                    continue
                time.sleep(draw.random() * seconds / 4)
                os.kill(draw.choice(ranks), signal.SIGKILL)
                killed += 1
                while set(ranks_of()) & set(ranks) and job.poll() is None:
                    time.sleep(0.05)
            status = job.wait(timeout=300)
            out.seek(0)
            text = out.read()
        assert status == 0, text
        assert killed == kills and text.count("it goes on with") == kills, text
        for left in range(1, kills + 1):
            assert text.count(f"it goes on with {left}\n") == 1, text
        assert "resumed after step" in text, text
        assert weights_of(text) == whole, text
    print(f"train-elastic: {kills} kills of {kills + 1} ranks, the bits of the unbroken run")


if __name__ == "__main__":
    try_errors()
    main()
