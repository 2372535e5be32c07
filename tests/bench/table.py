"""bench/gpu/run --table on made-up figures: medians over rounds, ratios, rates, and which goals are met.
  table.py RUN"""
import json
import subprocess
import sys
import tempfile


def figure(who, work, mode, dtype, median, nodes=0, bytes=0, unit="us"):
    return {"who": who, "work": work, "mode": mode, "dtype": dtype, "median": median, "min": median - 1,
            "max": median + 1, "unit": unit, "nodes": nodes, "bytes": bytes, "flop": 0}


FIGURES = [
    figure("firn", "copy", "memcpy", "-", 2000, bytes=8.6e9),
    figure("firn", "mlp_b64", "step", "fp16_adam", 40, nodes=13),
    figure("firn", "mlp_b64", "uncaptured", "fp16_adam", 200),
    figure("torch", "mlp_b64", "eager", "fp16_adam", 500, nodes=46),
    figure("torch", "mlp_b64", "graph", "fp16_adam", 79),
    figure("torch", "mlp_b64", "compile", "fp16_adam", 300),
    figure("torch", "mlp_b64", "compile_graph", "fp16_adam", 88),
    # Its floor: eight products of 3 us, and five other nodes of 1.2.
    figure("firn", "chain_100", "graph", "-", 120, nodes=100),
    *(figure("firn", work, "fused", "f16", 3)
      for work in ("fwd_64x512x784", "fwd_64x512x512", "fwd_64x10x512", "dgrad_64x512x512",
                   "dgrad_64x10x512", "wgrad_64x512x784", "wgrad_64x512x512", "wgrad_64x10x512")),
    # The second round: the medians of firn's step are 40 and 44.
    figure("firn", "mlp_b64", "step", "fp16_adam", 44, nodes=13),
    figure("firn", "add_32768x4096", "kernel", "f16", 250, bytes=0.805e9),
    figure("torch", "add_32768x4096", "eager", "f16", 200, bytes=0.805e9),
]
EXPECTED = [
    "mlp_b64                            fp16_adam  firn   step                    42             (39-45) us      13",
    "11.90x",  # 500 / 42
    "met    mlp_b64 fp16_adam eager: 11.9 >= 10",
    "MISSED mlp_b64 fp16_adam graph: 1.881 >= 2",
    "met    mlp_b64 fp16_adam compile,reduce_overhead,compile_graph: 2.095 >= 2",  # the best of them
    "met    mlp_b64 fp16_adam us: 42 <= 55",
    "met    mlp_b64 fp16_adam nodes: 13 <= 13",
    "MISSED mlp_b64 fp16_adam floor: 1.4 <= 1.15",  # 42 / 30
    "MISSED add_32768x4096 f16 eager: 0.8 >= 1",
    "MISSED add_32768x4096 f16 copy: 0.7488 >= 0.9",  # 3.22 of 4.3 TB/s
    "3.22 TB/s",
    "copy 4.30 TB/s",
    "4 met, 4 missed",
]

with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as log:
    log.write("".join(json.dumps(f) + "\n" for f in FIGURES))
    log.flush()
    text = subprocess.run([sys.executable, sys.argv[1], "--table", log.name], check=True,
                          capture_output=True, text=True).stdout
missing = [e for e in EXPECTED if e not in text]
if missing:
    sys.exit(f"not in the table: {missing}\n{text}")
