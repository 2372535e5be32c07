#!/usr/bin/env python3
"""Prints a log as train::fit() writes it (docs/records.md), of a run that is made up: any number of steps and epochs.

  make_log.py --steps 1000000 --epochs 20 > run.jsonl
"""
import argparse
import json
import math
import random
import sys

# One white pixel.
PICTURE = "data:image/bmp;base64,Qk06AAAAAAAAADYAAAAoAAAAAQAAAAEAAAABABgAAAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAA////AA=="
OWNERS = ["weights", "masters", "gradients", "optimizer", "activations", "recomputed", "workspace", "data"]
SUMMARY = """Net                        output          parameters
  features (Sequential)    [64, 128, 7, 7]    148,736
    0 (Conv2d)             [64, 64, 28, 28]       640
    1 (ReLU)               [64, 64, 28, 28]         0
    2 (Conv2d)             [64, 128, 14, 14]   73,856
  head (Linear)            [64, 10]            62,730
total                                         285,962"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--optimizers", default="", help="names, with commas between; none: one without a name")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--accumulate", type=int, default=4)
    p.add_argument("--skip-every", type=int, default=0, help="a step is skipped after so many; 0: three are")
    p.add_argument("--classes", type=int, default=10, help="of the confusion matrix; 0: none")
    p.add_argument("--no-steps", action="store_true", help="no records `step`")
    p.add_argument("--no-end", action="store_true", help="no record `end`: a run under way")
    o = p.parse_args()
    draw = random.Random(o.seed)
    names = o.optimizers.split(",") if o.optimizers else [""]
    out = sys.stdout

    def write(record):
        out.write(json.dumps(record, separators=(",", ":")) + "\n")

    def named(name, record):
        return {"name": name, **record} if name else record

    write({"record": "run", "schema": 1, "epochs": o.epochs, "epoch_samples": 60000, "ranks": 1, "threads": 2,
           "modules": [named(n, {"type": "Net", "parameters": 285962, "summary": SUMMARY}) for n in names],
           "optimizers": [named(n, {"kind": "AdamW", "description": "AdamW, lr warmup 400 then cosine, betas 0.9 and 0.999, "
                          "weight decay 0.05", "accumulate": o.accumulate, "clip_norm": 1, "device": "cpu"}) for n in names],
           "validation_samples": 10000,
           "settings": {"model": "cnn", "precision": "fp16", "lr": o.lr, "seed": o.seed, "augment": "crop=2,flip=0.5"},
           "measured": {"time": "2024-05-01T09:30:00Z"}})
    for point in range(0 if o.no_steps else 48):
        bytes_now = {n: 1_000_000 * (i + 1) * (1 + abs(math.sin(point / 8 + i))) // 1 for i, n in enumerate(OWNERS)}
        write({"record": "memory", "cycle": 2, "point": point + 1,
               "measured": {"event": 7 * point, "bytes": sum(bytes_now.values()), "by_owner": bytes_now}})
    skipped, scale, seconds = 0, 65536.0, 0.0
    step, per_epoch = 0, max(1, o.steps // o.epochs)
    batch = 60000 / per_epoch
    skips = {o.steps // 20, o.steps // 3, o.steps // 2} if not o.skip_every else ()
    for epoch in range(1, o.epochs + 1):
        for i in range(per_epoch):
            step += 1
            share = step / o.steps
            lr = o.lr * min(1, step / (0.05 * o.steps)) * 0.5 * (1 + math.cos(math.pi * share))
            loss = 0.25 + 2.05 * math.exp(-9 * share) + draw.gauss(0, 0.06) * (0.4 + math.exp(-4 * share))
            norm = math.exp(draw.gauss(-0.3 - share, 0.35)) * (30 if draw.random() < 2 / o.steps else 1)
            seconds += 60.0 / per_epoch
            if not o.no_steps:
                for n in names:
                    if (step in skips) if not o.skip_every else step % o.skip_every == 0:
                        skipped += 1
                        record = {"record": "step", "step": step - 1, "epoch": epoch, "samples": int((i + 1) * batch),
                                  "applied": False, "loss": abs(loss) * (1 if n == names[0] else 0.6), "weight": batch, "norm": None, "lr": lr,
                                  "loss_scale": scale, "micro_steps": o.accumulate, "skipped_steps": skipped,
                                  "cause": "skipped: the gradient is not finite", "parameter": "features.2.weight",
                                  "measured": {"seconds": seconds}}
                        scale = max(scale / 2, 1)
                        write({**({"record": "step", "optimizer": n} if n else {"record": "step"}), **record})
                    write({**({"record": "step", "optimizer": n} if n else {"record": "step"}),
                           "step": step, "epoch": epoch, "samples": int((i + 1) * batch), "applied": True,
                           "loss": abs(loss) * (1 if n == names[0] else 0.6), "weight": batch, "norm": norm, "lr": lr,
                           "loss_scale": scale, "micro_steps": o.accumulate, "skipped_steps": skipped,
                           "measured": {"seconds": seconds}})
        share = epoch / o.epochs
        peaks = [1.1e6, 1.1e6, 2.3e6, 4.6e6, 3.1e7 + draw.gauss(0, 1e5), 0, 5.2e6, 8e5]
        at_peak = dict(zip(OWNERS, map(int, peaks)))
        record = {"record": "epoch", "epoch": epoch, "samples": 60000,
                  "train_loss": 0.25 + 2.05 * math.exp(-9 * (share - 0.5 / o.epochs)),
                  "validation_loss": 0.31 + 1.9 * math.exp(-8 * share) + draw.gauss(0, 0.01),
                  "metrics": {"accuracy": 0.925 - 0.3 * math.exp(-5 * share) + draw.gauss(0, 0.002),
                              "F1": 0.915 - 0.35 * math.exp(-5 * share) + draw.gauss(0, 0.003)},
                  "lr": lr, "loss_scale": scale, "applied_steps": step, "skipped_steps": skipped}
        if len(names) > 1:
            record["train_losses"] = {n: record["train_loss"] for n in names}
        if o.classes and epoch == o.epochs:
            details = record["details"] = {}
            details["confusion"] = [[draw.randrange(880, 980) if i == k else draw.randrange(0, 30) for k in range(o.classes)]
                                   for i in range(o.classes)]
            details["classes"] = [f"class {i}" for i in range(o.classes)]
            details["mistakes"] = [{"true": k % o.classes, "predicted": (k + 1) % o.classes, "probability": 1 - 0.01 * k,
                                    "image": PICTURE} for k in range(12)]
        record["measured"] = {"seconds": 60 + draw.gauss(0, 1), "validation_seconds": 4 + draw.gauss(0, 0.1),
                              "samples_per_second": 1000 + draw.gauss(0, 15), "peak_bytes": sum(at_peak.values()) + 1000,
                              "training_peak_bytes": sum(at_peak.values()), "training_peak_by_owner": at_peak,
                              "training_bytes_at_peak": at_peak, "peak_rss_bytes": 180_000_000}
        write(record)
    if not o.no_end:
        write({"record": "end", "ended": "epochs", "epochs": o.epochs, "applied_steps": step})


main()
