"""What a call of a group costs: src/dist/local for ranks that are threads, src/dist/mpi for processes."""
import dataclasses
import math

from .calls import LINE, ceil_div

RECORD_BYTES = 128    # sizeof(MpiWorld::Record): what a rank brings to a meeting
IN_RECORD = 112       # of it: up to so many bytes of a call travel with it
CALL_BYTES = 16       # sizeof(Call): the two sides of a message tell each other first
WHOLE = 16 << 10      # MpiSizes::whole: a sum that is smaller on all ranks together goes from each to all
SHARE = 1 << 20       # MpiSizes::share: of a rank in a piece of a sum
LEAST_SHARE = 4096    # of it with many ranks
ROWS = 32 << 20       # of a piece on all ranks, until shares are the least
MESSAGE = 1 << 30     # MpiSizes::message
SUMS = ("all_reduce", "reduce_scatter")


@dataclasses.dataclass(frozen=True)
class Threads:
    """Ranks in one memory: two meetings, and between them each rank reads the others' bytes where they are."""
    latency: dict        # seconds of a call without bytes, by the number of ranks
    sum_byte: float      # seconds for each byte of a tensor that is added up, of one rank among two
    copy_byte: float     # for each byte that is copied
    cores: int

    def waits(self, n):
        """Ranks that share a core work in turn."""
        return max(1, n / self.cores)

    def touched(self, call, n):
        """Bytes that a rank reads, and writes as many. A sum is as large as the tensor with any number of ranks: its
        share of the elements comes from n ranks and goes to n."""
        if call.kind == "all_reduce":
            return call.bytes
        if call.kind == "reduce_scatter":  # reads as much as a sum, and writes to one
            return (n + 1) * call.bytes / 2
        if call.kind == "all_to_all":
            return n * call.bytes
        return (n - 1) * call.bytes if call.kind == "all_gather" else call.bytes

    def without_bytes(self):
        return dataclasses.replace(self, sum_byte=0, copy_byte=0)

    def seconds(self, call, n, inside=1):
        """Of a call of n ranks; where they are makes no difference."""
        rate = self.sum_byte if call.kind in SUMS else self.copy_byte
        return call.times * (self.latency[n] + self.touched(call, n) * rate * self.waits(n))


@dataclasses.dataclass(frozen=True)
class Pieces:
    """How MPI's sums are cut (struct Pieces in collectives.cpp)."""
    count: int
    size: int
    ranks: int
    scatter: bool = False  # a reduce_scatter: a piece is of each rank's part

    @property
    def length(self):
        share = min(SHARE, max(LEAST_SHARE, ROWS // self.ranks)) // self.size
        return max(1, share) * (1 if self.scatter else self.ranks)

    @property
    def number(self):
        return ceil_div(self.count, self.length)

    def share(self, count, rank):
        """Elements of a piece of so many: shares are whole cache lines (share_begin)."""
        line = LINE // self.size
        lines = ceil_div(count, line)
        first, last = (min(count, (lines // self.ranks * r + min(lines % self.ranks, r)) * line)
                       for r in (rank, rank + 1))
        return last - first

    def with_a_share(self, count):
        return min(self.ranks, ceil_div(count, LINE // self.size))

    def cut(self):
        """(pieces, elements of each): those that are whole, and the last one."""
        rest = self.count - (self.number - 1) * self.length
        return [(self.number - 1, self.length), (1, rest)]


@dataclasses.dataclass(frozen=True)
class Processes:
    """Ranks over MPI. All messages of a collective are under way at once, so their latencies are one, but each costs
    its sender and its receiver some time."""
    latency: float       # seconds until the first byte of a message is there
    message: float       # seconds of a rank's time for a message that it sends and one that it receives
    byte: float          # seconds for each byte to another machine, of one rank while all ranks of its machine send
    inside_byte: float   # within the machine
    sum_byte: float      # seconds to add up a byte
    machine_ranks: int
    meeting: dict = dataclasses.field(default_factory=dict)  # measured seconds of a meeting, by ranks; else computed
    cores: float = math.inf

    def waits(self, n):
        return max(1, min(n, self.machine_ranks) / self.cores)

    def without_bytes(self):
        return dataclasses.replace(self, byte=0, inside_byte=0, sum_byte=0)

    def rounds(self, n):
        return (n - 1).bit_length()  # MpiWorld::meet(): log2(n), rounded up

    def bursts(self, call, n, rank=0):
        """(times, messages, bytes) that a rank sends at once, behind the meeting."""
        if call.count == 0 or n == 1 or self.in_record(call):
            return []
        if call.kind in ("all_gather", "all_to_all"):
            return [(1, (n - 1) * ceil_div(call.bytes, MESSAGE), (n - 1) * call.bytes)]
        if call.kind == "all_reduce" and call.bytes * n <= WHOLE:
            return [(1, n - 1, (n - 1) * call.bytes)]
        if call.kind == "all_reduce":
            pieces = Pieces(call.count, call.size, n)
            out = []
            for times, count in pieces.cut():
                own = pieces.share(count, rank)
                others = pieces.with_a_share(count) - (own > 0)
                out += [(times, others, (count - own) * call.size),             # to each its share
                        (times, (n - 1) * (own > 0), (n - 1) * own * call.size)]  # the sum of the own share to all
            return [b for b in out if b[0]]
        if call.kind == "reduce_scatter":
            pieces = Pieces(call.count, call.size, n, scatter=True)
            return [(times, n - 1, (n - 1) * count * call.size) for times, count in pieces.cut() if times]
        if call.kind == "broadcast":  # MPI's own: a tree, of which the first rank sends most
            return [(1, self.rounds(n), self.rounds(n) * call.bytes)]
        if call.kind == "send":
            return [(1, 1, CALL_BYTES), (1, 1, call.bytes)]
        return [(1, 1, CALL_BYTES)] if call.kind == "recv" else []

    def in_record(self, call):
        return call.bytes <= IN_RECORD and call.kind in ("all_reduce", "all_gather", "broadcast")

    def meets(self, call):
        return call.kind not in ("send", "recv")

    def messages(self, call, n, rank=0):
        """Messages and bytes that a rank sends."""
        meeting = (self.rounds(n), RECORD_BYTES * (n - 1)) if self.meets(call) else (0, 0)
        bursts = self.bursts(call, n, rank)
        return (call.times * (meeting[0] + sum(t * m for t, m, _ in bursts)),
                call.times * (meeting[1] + sum(t * b for t, _, b in bursts)))

    def wire(self, sent, n, inside):
        """Seconds of so many bytes to n - 1 others, of which `inside` - 1 are in the same machine."""
        near = (inside - 1) / (n - 1)
        return sent * (near * self.inside_byte + (1 - near) * self.byte)

    def meeting_seconds(self, n, inside):
        if self.meeting:
            return self.meeting[n]
        return (self.rounds(n) * (self.latency + self.message)
                + self.wire(RECORD_BYTES * (n - 1), n, inside))

    def seconds(self, call, n, inside=1):
        """Of a call of n ranks, of which `inside` are in the machine of each. A send counts as the message that it is,
        from one rank's call to the other's."""
        if n == 1:
            return 0
        if call.kind == "recv":
            return 0  # the other side of a send
        total = self.meeting_seconds(n, inside) if self.meets(call) else self.latency + self.message
        bursts = self.bursts(call, n)
        for times, messages, sent in bursts:
            total += times * (messages * self.message + self.wire(sent, n, inside)) * self.waits(n)
        if bursts:
            # A piece's gathering and the next one's scattering are under way together: one latency for each piece.
            cut = call.kind == "reduce_scatter" or (call.kind == "all_reduce" and call.bytes * n > WHOLE)
            pieces = Pieces(call.count, call.size, n, scatter=call.kind == "reduce_scatter").number if cut else 0
            total += (pieces + 1) * self.latency
            if call.kind in SUMS:  # a rank adds up its share of all ranks; of a small sum, all of it
                added = call.bytes if call.kind == "all_reduce" and pieces else call.bytes * n
                total += added * self.sum_byte * self.waits(n)
        return call.times * total
