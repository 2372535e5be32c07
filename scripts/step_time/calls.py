"""Which calls of a group a training step makes, from the code in src/dist/step, src/optim/exact and
src/dist/parallel. tests/dist/cost_model.py compares them with counted ones."""
import dataclasses

RECORD = 168        # bytes: sizeof(RankRecord), which each rank tells the others at the end of a cycle
MODEL_RECORD = 152  # sizeof(ModelRecord): among the ranks that have parts of one model
SUMS = 56           # sizeof(CycleSums): of each node in exact mode
SUMMARY = 40        # sizeof(GradientSummary): what a rank finds out of its part of the gradients
BUCKET = 4 << 20    # bucket_bytes(): of gradients that are exchanged at once from ZeRO stage 2 on
HEADER = 96         # sizeof(Header): before each activation and each gradient between stages
LINE = 64           # bytes: parameters begin at multiples of it


@dataclasses.dataclass(frozen=True)
class Call:
    """`count` elements of `size` bytes: of one rank's part, or of the tensor where there are no parts."""
    kind: str
    group: str  # dp, tp, pp, copy: of Mesh
    count: int
    size: int = 1
    times: int = 1

    @property
    def bytes(self):
        return self.count * self.size


def ceil_div(a, b):
    return -(-a // b)


def rooms(numels, size=4):
    unit = LINE // size
    return [max(ceil_div(n, unit), 1) * unit for n in numels]


def arena_elements(numels, size=4):
    """What the parameters of one dtype take: each begins at a cache line (ParamStore::lay_out)."""
    return sum(rooms(numels, size))


def buckets_of(numels, size=4, bucket=BUCKET):
    """Elements of the buckets of an arena: whole parameters, up to `bucket` bytes in f32, filled from the back
    (bucket_ranges() of src/dist/step/bucket_layout.cpp)."""
    out = []
    for n in reversed(rooms(numels, size)):
        if out and (out[-1] + n) * 4 <= bucket:
            out[-1] += n
        else:
            out.append(n)
    return out


def even_buckets(elements):
    """The same where only the number of elements is known."""
    full, rest = divmod(elements, BUCKET // 4)
    return [BUCKET // 4] * full + ([rest] if rest else [])


def share_of(n, rank, ranks):
    """Elements [first, last) of n: the first ranks have one more (src/base/share.h)."""
    def begin(r):
        return r * (n // ranks) + min(r, n % ranks)
    return begin(rank), begin(rank + 1)


def nodes_of(first, last):
    """How many nodes of the tree are left of chunks [first, last), and how many stand at a time (chunks.h)."""
    stack, most = [], 0
    for q in range(first, last):
        most = max(most, len(stack) + 1)
        node = (q, 1)
        while stack and stack[-1][1] == node[1] and stack[-1][0] % (2 * node[1]) == 0:
            node = (stack.pop()[0], 2 * node[1])
        stack.append(node)
    return len(stack), most


def even_parts(ranks, elements, weight_size):
    """Elements of equal parts, which are whole cache lines of weights, and what the last rank has beside."""
    unit = LINE // weight_size
    part = elements // ranks // unit * unit
    return part, elements - ranks * part


def gather_parts(ranks, elements, weight_size, size):
    """All ranks receive all parts of `size` bytes an element (gather_bounds() of src/dist/step/shards.cpp)."""
    part, rest = even_parts(ranks, elements, weight_size)
    out = [Call("all_gather", "dp", part, size)] if part else []
    return out + ([Call("broadcast", "dp", rest, size)] if rest else [])


def zero_weights(ranks, elements, weight_size):
    """ZeRO, after the update."""
    return gather_parts(ranks, elements, weight_size, weight_size)


def turn(tensors, of_buckets, zero):
    """A micro-step from ZeRO stage 2 on (Impl::take_turn): where the ranks are, the buckets, and how it went. In stage 3
    the ranks tell each other before each bucket and at the end (Impl::meet)."""
    tell = Call("all_gather", "dp", RECORD + tensors)
    out = [tell]
    for bucket in of_buckets:
        out += ([tell] if zero > 2 else []) + bucket
    return out + [tell if zero > 2 else Call("all_gather", "dp", 1)]


def reduce_buckets(ranks, buckets, weight_size):
    """Every rank gets its part of the sum of each bucket (add_bucket)."""
    out = []
    for elements in buckets:
        part, rest = even_parts(ranks, elements, weight_size)
        out.append(([Call("reduce_scatter", "dp", part, 4)] if part else [])
                   + ([Call("all_reduce", "dp", rest, 4)] if rest else []))
    return out


def exchange_buckets(ranks, buckets, weight_size, sources):
    """Every rank gets its part of the buckets of so many ranks that have a chunk (SumsInTree). Where
    there are no equal parts, buckets go to all, rank by rank."""
    out = []
    for elements in buckets:
        part, rest = even_parts(ranks, elements, weight_size)
        one = [Call("all_to_all", "dp", part, 4)] if part else [Call("broadcast", "dp", elements, 4, sources)]
        out.append(one + ([Call("all_gather", "dp", rest, 4)] if part and rest else []))
    return out


def divided_weights(ranks, buckets, tensors, weight_size, micro_steps, zero):
    """Stage 2: the weights after the update. Stage 3: those that passes need (LentWeights::bring), if layers use
    buckets in their order. A pass goes to and fro, and finds the bucket at which it turns round; the first one of a
    step finds none."""
    if zero == 2:
        return [c for b in buckets for c in zero_weights(ranks, b, weight_size)]
    tell = Call("all_gather", "dp", RECORD + tensors)
    inner = [c for b in buckets[1:] for c in [tell, *zero_weights(ranks, b, weight_size)]]
    return [tell, *zero_weights(ranks, buckets[0], weight_size)] + inner * (2 * micro_steps)


def plain(ranks, elements, tensors, zero=0, weight_size=4, micro_steps=1, buckets=None):
    """A step of distribute(): what each rank tells, the sum of gradients in f32, and with ZeRO the weights. Stage 2
    adds up gradients in each micro-step, and the ranks tell each other what they have found of the norm."""
    if ranks == 1:
        return []
    tell = Call("all_gather", "dp", RECORD + tensors)
    if zero < 2:
        out = [tell, Call("all_reduce", "dp", elements, 4)]
        return out + (zero_weights(ranks, elements, weight_size) if zero else [])
    buckets = buckets or even_buckets(elements)
    out = turn(tensors, reduce_buckets(ranks, buckets, weight_size), zero) * micro_steps
    out += [tell, Call("all_gather", "dp", SUMMARY)]
    return out + divided_weights(ranks, buckets, tensors, weight_size, micro_steps, zero)


def most_nodes(ranks, chunks):
    """The most nodes that one rank has left of its chunks."""
    return max(nodes_of(*share_of(chunks, r, ranks))[0] for r in range(ranks))


def sources_of_turns(ranks, chunks):
    """How many ranks have a chunk in each turn."""
    shares = [last - first for first, last in (share_of(chunks, r, ranks) for r in range(ranks))]
    return [sum(n > t for n in shares) for t in range(max(shares))]


def exact(ranks, chunks, elements, tensors, zero=0, weight_size=4, buckets=None):
    """A step in exact mode: the nodes' scalars, each node's slices, and the slices of the sum. With stage 2 each
    chunk's slices go at once, and at the end all receive the sum bucket by bucket, for its norm alone."""
    if ranks == 1:
        return []
    if zero > 1:
        buckets = buckets or even_buckets(elements)
        out = []
        for sources in sources_of_turns(ranks, chunks):
            out += turn(tensors, exchange_buckets(ranks, buckets, weight_size, sources), zero)
        out += [Call("all_gather", "dp", RECORD + tensors)]
        out += [c for b in buckets for c in gather_parts(ranks, b, weight_size, 4)]
        micro_steps = len(sources_of_turns(ranks, chunks))
        return out + divided_weights(ranks, buckets, tensors, weight_size, micro_steps, zero)
    part, nodes = ceil_div(elements, ranks), most_nodes(ranks, chunks)
    out = [Call("all_gather", "dp", RECORD + tensors), Call("all_gather", "dp", SUMS * nodes),
           Call("all_to_all", "dp", part, 4, nodes), Call("all_gather", "dp", part, 4)]
    return out + (zero_weights(ranks, elements, weight_size) if zero else [])


def additions(ranks, chunks, elements, zero=0):
    """Exact mode, on the rank that has most to do: bytes of gradients that it adds others to, and bytes that it copies.
    In its own chunks that is all but the nodes that are left, then its slice of all ranks' nodes. An arena that does
    not divide by the ranks is copied to memory that does: each node on its way out, and the sum."""
    if zero > 1 and ranks > 1:  # of all chunks, the part that is kept
        part = 4 * ceil_div(elements, ranks)
        return part * (chunks - 1), part * (chunks + 1)
    shares = [share_of(chunks, r, ranks) for r in range(ranks)]
    nodes = [nodes_of(*s)[0] for s in shares]
    within = max(last - first - left for (first, last), left in zip(shares, nodes))
    # On one rank the nodes that are left are added up whole.
    added = 4 * elements * within + 4 * ceil_div(elements, ranks) * (sum(nodes) - 1)
    return added, 4 * elements * (max(nodes) + 1) if elements % ranks else 0


def whole_model(ranks):
    """One decision of the ranks of a copy, tp * pp: a norm, and whether the step is made."""
    return [Call("all_gather", "copy", MODEL_RECORD)] if ranks > 1 else []


def divided_layers(ranks, activation, blocks, rows=0, embedding=False, head=False):
    """A micro-step over tp: sums of activations in f32. A block has two divided layers. Each adds up its output in
    the forward pass, and the gradient of its input in the backward pass. Returns the calls of both passes.
    `activation` is elements of a micro-batch, `rows` its tokens that have a loss."""
    if ranks == 1:
        return [], []
    sums = Call("all_reduce", "tp", activation, 4, 2 * blocks + embedding)
    forward = [sums] if sums.times else []
    backward = [Call("all_reduce", "tp", activation, 4, 2 * blocks)] if blocks else []
    if head:  # copy_to_ranks() before the last layer, and vocab_parallel_cross_entropy()
        forward += [Call("all_reduce", "tp", rows, 4), Call("all_reduce", "tp", 2 * rows, 4)]
        backward = [Call("all_reduce", "tp", activation, 4)] + backward
    return forward, backward


def between_stages(stages, stage, micro_steps, activation, size=4):
    """A batch over pp, as one stage sees it: what ranks agree on, then an activation and a gradient for each
    micro-batch and neighbour, each behind a header."""
    if stages == 1:
        return []
    times = micro_steps * ((stage > 0) + (stage < stages - 1))
    out = [Call("all_gather", "pp", 4, 8)]
    for kind in ("send", "recv"):
        out += [Call(kind, "pp", HEADER, 1, times), Call(kind, "pp", activation, size, times)]
    return out
