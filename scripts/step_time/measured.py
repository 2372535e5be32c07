"""Measured steps (bench_ranks) beside what the model makes of the parts that were measured without them."""
import dataclasses

from . import calls
from .networks import Processes, Threads

WORKS = ("talk", "wide", "state", "deep")
MODES = ("plain", "zero", "exact")
RANKS = (2, 3, 4)
DEEP_BATCH = 12      # micro-batches of `deep` in a step of all ranks; each rank of the others has one
NORM = 4 / 32        # of an AdamW update's bytes, the reads for the norm, which every rank makes of all gradients


@dataclasses.dataclass(frozen=True)
class Part:
    """Seconds of a predicted step."""
    compute: float
    latency: float
    bytes: float
    additions: float
    update: float

    @property
    def total(self):
        return self.compute + self.latency + self.bytes + self.additions + self.update


def read(text):
    """{what: smallest value} of the lines of bench_ranks: what, median, unit, smallest, largest, count."""
    out = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 6 and fields[0].startswith("ranks."):
            out[fields[0]] = float(fields[3])
    return out


def network_of(found):
    """From collectives without steps."""
    cores = int(found["ranks.cores"])
    # A call of 64 bytes after some work, less the work.
    latency = {n: (found[f"ranks.latency.{n}"] - found["ranks.pause"] * max(1, n / cores)) * 1e-6
               for n in RANKS if f"ranks.latency.{n}" in found}
    waits = max(1, 2 / cores)
    # Of all_reduce and all_gather of 1 MiB on two ranks and a pass over them, for each byte of the tensor.
    rest = latency[2] / (1 << 20) + found["ranks.bulk.pass"] * 1e-9 * waits
    total, gather = (max(found[f"ranks.bulk.{what}.2"] * 1e-9 - rest, 0) / waits for what in ("sum", "gather"))
    if not found["ranks.processes"]:
        return Threads(latency=latency, sum_byte=total, copy_byte=2 * gather, cores=cores)
    # Half of what is gathered has come from the other rank. A sum moves twice as much, and adds it up.
    return Processes(latency=latency[2], message=0, byte=2 * gather, inside_byte=2 * gather,
                     sum_byte=max(total - 2 * gather, 0), machine_ranks=max(latency), meeting=latency, cores=cores)


def predict(found, work, mode, n):
    network = network_of(found)
    elements, tensors = int(found[f"ranks.{work}.elements"]), int(found[f"ranks.{work}.tensors"])
    micro, one = (found[f"ranks.{work}.{what}"] * 1e-6 for what in ("micro_step", "plain.1"))
    micro_steps = DEEP_BATCH // n if work == "deep" else 1
    update = max(one - micro * (DEEP_BATCH if work == "deep" else 1), 0)  # what a step has beside
    waits = network.waits(n)
    added = copied = 0
    if mode == "exact":
        made = calls.exact(n, micro_steps * n, elements, tensors)
        added, copied = calls.additions(n, micro_steps * n, elements)
    else:
        made = calls.plain(n, elements, tensors, zero=mode == "zero")
    whole, latency = (sum(net.seconds(c, n, n) for c in made) for net in (network, network.without_bytes()))
    # The memory of such a copy is far away, as another rank's is.
    far = network.copy_byte if isinstance(network, Threads) else network.inside_byte
    return Part(compute=micro_steps * micro * waits, latency=latency, bytes=whole - latency,
                additions=(added * found["ranks.bulk.add"] * 1e-9 + copied * far) * waits,
                update=update * waits * (NORM + (1 - NORM) / n if mode == "zero" else 1))


def compare(found):
    """(work, mode, ranks, predicted parts, measured seconds)."""
    for work in WORKS:
        for mode in MODES:
            for n in RANKS:
                key = f"ranks.{work}.{mode}.{n}"
                if key in found:
                    yield work, mode, n, predict(found, work, mode, n), found[key] * 1e-6
