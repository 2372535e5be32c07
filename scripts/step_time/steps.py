"""The time of a training step over dp * tp * pp ranks, and what it is made of."""
import dataclasses

from . import calls, pipeline

BACKWARD = 2 / 3  # of a micro-step: the gradients of inputs and of weights, beside one product in the forward pass


@dataclasses.dataclass(frozen=True)
class Model:
    """A transformer of equal blocks, as far as its cost goes."""
    parameters: int
    tensors: int
    layers: int
    width: int
    length: int         # tokens of a sample
    weight_bytes: int   # 4: f32. 2: bf16 with f32 masters

    def flops(self):
        """Of a sample's forward and backward pass: 6 for each parameter and token, and 12 layers width length for each
        token's attention (Chowdhery et al. 2022, appendix B)."""
        return self.length * (6 * self.parameters + 12 * self.layers * self.width * self.length)


@dataclasses.dataclass(frozen=True)
class Plan:
    dp: int
    tp: int = 1
    pp: int = 1
    batch: int = 1        # samples of all copies in a step
    micro_batch: int = 1  # samples
    zero: int = 0
    chunk: int = 0      # of exact mode; 0: the ordinary one
    overlap: bool = False  # what is not built: an exchange of gradients during the last backward pass

    @property
    def ranks(self):
        return self.dp * self.tp * self.pp

    @property
    def samples(self):
        """Of the copy that has most."""
        if self.chunk:
            return calls.ceil_div(self.chunks, self.dp) * self.chunk
        return calls.ceil_div(self.batch, self.dp)

    @property
    def chunks(self):
        return calls.ceil_div(self.batch, self.chunk) if self.chunk else 0

    @property
    def micro_steps(self):
        return calls.ceil_div(self.samples, self.chunk or self.micro_batch)


@dataclasses.dataclass(frozen=True)
class Step:
    """Seconds of the slowest rank, bytes and messages that it sends, bytes of state that it keeps."""
    compute: float   # forward and backward passes
    divided: float   # sums of activations over tp
    bubble: float    # waits for other stages, and messages between them
    exchange: float  # gradients, weights, decisions
    update: float
    hidden: float    # of the exchange, behind a backward pass; 0 as firn is
    sent: int
    messages: int
    state: int

    @property
    def seconds(self):
        return self.compute + self.divided + self.bubble + self.exchange + self.update - self.hidden


def state_bytes(model, plan):
    """Of weights, gradients, masters and AdamW's two moments; in exact mode of the copies of gradients, too."""
    elements = calls.ceil_div(model.parameters, plan.tp * plan.pp)
    kept = 8 + (4 if model.weight_bytes == 2 else 0)  # moments in f32, masters
    divided = plan.dp if plan.zero else 1
    gradients = calls.ceil_div(elements * 4, plan.dp if plan.zero > 1 else 1)
    weights = calls.ceil_div(elements * model.weight_bytes, plan.dp if plan.zero > 2 else 1)
    out = weights + gradients + calls.ceil_div(elements * kept, divided)
    if plan.chunk and plan.zero > 1 and plan.dp > 1:  # parts of all ranks' chunks
        most = sum(calls.nodes_of(*calls.share_of(plan.chunks, r, plan.dp))[1] for r in range(plan.dp))
        out += 4 * calls.ceil_div(elements, plan.dp) * most
    elif plan.chunk:
        stacks = {calls.share_of(plan.chunks, r, plan.dp) for r in range(plan.dp)}
        most = max(calls.nodes_of(*share)[1] for share in stacks)
        slices = calls.most_nodes(plan.dp, plan.chunks) if plan.dp > 1 else 0
        out += 4 * elements * (max(most, 1) - 1 + slices)
    return out


def update_bytes(model, plan):
    """Bytes that an update reads or writes: the gradient for its norm, on every rank whole, but for stage 2 out of
    exact mode; then the gradient, the weight, and twice what is read and written (master, two moments), of this rank's
    part."""
    elements = calls.ceil_div(model.parameters, plan.tp * plan.pp)
    own = calls.ceil_div(elements, plan.dp if plan.zero else 1)
    masters = 8 if model.weight_bytes == 2 else model.weight_bytes  # a master is read and written, a weight too in f32
    norm = own if plan.zero > 1 and not plan.chunk else elements
    return 4 * norm + own * (4 + model.weight_bytes + masters + 16)


def inside(plan, machine_ranks):
    """How many ranks of each group are in one machine. Rank (stage * dp + copy) * tp + part: those of tp follow one
    another."""
    tp = min(plan.tp, machine_ranks)
    dp = max(1, min(plan.dp, machine_ranks // plan.tp))
    pp = max(1, min(plan.pp, machine_ranks // (plan.tp * plan.dp)))
    return {"tp": tp, "dp": dp, "pp": pp, "copy": tp * pp}


def exchange_calls(model, plan):
    elements = calls.arena_elements([calls.ceil_div(model.parameters, plan.tp * plan.pp)])
    tensors = calls.ceil_div(model.tensors, plan.pp)
    if plan.chunk:
        out = calls.exact(plan.dp, plan.chunks, elements, tensors, plan.zero, model.weight_bytes)
    else:
        out = calls.plain(plan.dp, elements, tensors, plan.zero, model.weight_bytes, plan.micro_steps)
    return out + calls.whole_model(plan.tp * plan.pp)


def step(model, plan, network, sample, memory_byte):
    """`sample`: seconds of a sample's passes on one rank that has the whole model. `memory_byte`: seconds for a byte
    that an update or an addition of gradients touches."""
    sizes = {"dp": plan.dp, "tp": plan.tp, "pp": plan.pp, "copy": plan.tp * plan.pp}
    near = inside(plan, network.machine_ranks)
    waits = network.waits(plan.ranks)

    def cost(some):
        return sum(network.seconds(c, sizes[c.group], near[c.group]) for c in some)

    micro_batch = plan.chunk or min(plan.micro_batch, max(plan.samples, 1))
    passes = micro_batch * sample / (plan.tp * plan.pp) * waits
    tokens = micro_batch * model.length
    activation = tokens * model.width
    blocks = calls.ceil_div(model.layers, plan.pp)
    # The first stage has the embedding, the last one the head. The slower of the two is every stage's.
    forward, backward = calls.divided_layers(plan.tp, activation, blocks, tokens, embedding=plan.pp == 1, head=True)
    times = ((1 - BACKWARD) * passes + cost(forward), BACKWARD * passes + cost(backward))
    message = 0
    if plan.pp > 1:
        parcel = [calls.Call("send", "pp", calls.HEADER), calls.Call("send", "pp", activation, model.weight_bytes)]
        message = cost(parcel)
    total = max(pipeline.run(plan.pp, plan.micro_steps, *times, message))
    compute = plan.micro_steps * passes
    divided = plan.micro_steps * (cost(forward) + cost(backward))

    gradients = exchange_calls(model, plan)
    elements = calls.ceil_div(model.parameters, plan.tp * plan.pp)
    exchange = cost(gradients)
    if plan.chunk:  # y += x reads two arrays and writes one, a copy one of each
        added, copied = calls.additions(plan.dp, plan.chunks, elements, plan.zero)
        exchange += (3 * added + 2 * copied) * memory_byte * waits
    hidden = 0
    if plan.overlap and plan.dp > 1:
        # The gradients of the layer that is first in the model come last, and nothing is left to hide them behind.
        sums = sum(network.seconds(c, plan.dp, near["dp"]) for c in gradients if c.kind in ("all_reduce", "reduce_scatter", "all_to_all"))
        hidden = min(sums * (1 - 1 / blocks), times[1])
    own_calls = gradients + [dataclasses.replace(c, times=c.times * plan.micro_steps) for c in forward + backward]
    own_calls += calls.between_stages(plan.pp, min(1, plan.pp - 1), plan.micro_steps, activation, model.weight_bytes)
    counted = [network.messages(c, sizes[c.group]) for c in own_calls]
    bubble = total - compute - divided if plan.pp > 1 else 0
    return Step(compute=compute, divided=divided, bubble=bubble, exchange=exchange,
                update=update_bytes(model, plan) * memory_byte * waits, hidden=hidden,
                sent=sum(b for _, b in counted), messages=sum(m for m, _ in counted), state=state_bytes(model, plan))


def efficiency(model, plan, result, sample):
    """Of the ranks' time, the share that computes samples."""
    return plan.batch * sample / (plan.ranks * result.seconds)
