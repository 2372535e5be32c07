"""The 1F1B schedule of src/dist/parallel/pipeline.cpp, event by event."""


def program(stage, stages, micro_steps):
    """What a stage does in a batch, in the order of Pipeline::Batch::micro_step(): ("forward",), ("backward",), or
    (what, neighbour) with what of send, recv, exchange."""
    first, last = stage == 0, stage == stages - 1
    before, after = stage - 1, stage + 1
    forward, out = 0, []
    while forward < min(stages - 1 - stage, micro_steps):
        out += ([] if first else [("recv", before)]) + [("forward",), ("send", after)]
        forward += 1
    if forward < micro_steps and not first:
        out.append(("recv", before))
    for _ in range(micro_steps):
        if forward < micro_steps:
            out.append(("forward",))
            forward += 1
            out += [] if last else [("exchange", after)]
        elif not last:
            out.append(("recv", after))
        out.append(("backward",))
        if not first:
            out.append(("exchange" if forward < micro_steps else "send", before))
    return out


def run(stages, micro_steps, forward, backward, message):
    """Seconds until each stage has ended. `forward` and `backward` are those of a micro-batch on one stage, `message`
    the seconds of an activation or a gradient, or of both at once. Each message waits for both sides."""
    programs = [program(s, stages, micro_steps) for s in range(stages)]
    at, clock = [0] * stages, [0.0] * stages
    meets = {"send": "recv", "recv": "send", "exchange": "exchange"}
    moved = True
    while moved:
        moved = False
        for s in range(stages):
            while at[s] < len(programs[s]):
                what = programs[s][at[s]]
                if len(what) == 1:
                    clock[s] += forward if what[0] == "forward" else backward
                    at[s] += 1
                    moved = True
                    continue
                other = what[1]
                theirs = programs[other][at[other]] if at[other] < len(programs[other]) else None
                if theirs != (meets[what[0]], s):
                    break  # until the other stage has come to it
                clock[s] = clock[other] = max(clock[s], clock[other]) + message
                at[s] += 1
                at[other] += 1
                moved = True
    assert all(at[s] == len(programs[s]) for s in range(stages)), "stages wait for each other"
    return clock
