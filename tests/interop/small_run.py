"""A training by the sample `characters` on a made-up text: what is compared are its log and its trace."""
import random
import subprocess


def train(program, folder, *options):
    """The sample in f16 with two micro-batches a step. Under this loss scale the first step overflows and is skipped.

    Ends with the program's message if it fails.
    """
    draw = random.Random(1)
    words = ["snow", "ice", "cold", "is", "melts", "slowly", "in", "the", "sun"]
    text = folder / "text"
    text.write_text(" ".join(draw.choice(words) for _ in range(2000)), encoding="utf-8")
    run = subprocess.run([program, "--data", text, "--length", "16", "--width", "16", "--blocks", "1", "--heads", "2",
                          "--batch", "16", "--micro-batch", "8", "--epochs", "1", "--precision", "fp16",
                          "--loss-scale", str(1 << 22), "--generate", "0", *options], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"interop: {program} ended with {run.returncode}: {run.stderr}")
