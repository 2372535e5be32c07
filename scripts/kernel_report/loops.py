"""The loops of a kernel, and the path through a loop that moves most bytes."""
import dataclasses
import re

from .machine_code import Instruction


@dataclasses.dataclass
class Block:
    code: list
    next: list  # numbers of the blocks that may follow


@dataclasses.dataclass
class Loop:
    head: int
    blocks: frozenset
    inner: list  # loops inside of it, at any depth


def width(instruction):
    """Bytes that one thread's access moves."""
    for part in instruction.name.split(".")[1:]:
        if part in ("128", "64"):
            return int(part) // 8
        if part in ("U16", "S16"):
            return 2
        if part in ("U8", "S8"):
            return 1
    return 4


def is_load(i):
    return i.base in ("LDG", "LD", "LDGSTS")


def is_store(i):
    return i.base in ("STG", "ST", "RED")


def moved(i):
    """Bytes of global memory that a thread reads or writes."""
    return width(i) if is_load(i) or is_store(i) else 0


def basic_blocks(code):
    """The blocks of a kernel. The first is its entry. Calls come back, so they end no block."""
    starts, position = {0}, {}
    flat = []
    for item in code:
        if isinstance(item, str):
            position[item] = len(flat)
            starts.add(len(flat))
        else:
            flat.append(item)
    jumps = ("BRA", "EXIT", "RET", "BRX", "JMP", "KILL")
    for n, i in enumerate(flat):
        if i.base in jumps:
            starts.add(n + 1)
    starts = sorted(s for s in starts if s < len(flat))
    number = {s: b for b, s in enumerate(starts)}
    blocks = []
    for b, first in enumerate(starts):
        last = starts[b + 1] if b + 1 < len(starts) else len(flat)
        body = flat[first:last]
        end = body[-1]
        following = []
        # A second condition may stand among the operands: "@P2 BRA P3, `(.L_x_5)".
        conditional = bool(end.guard) or bool(re.match(r"\s*!?U?P\d", end.operands)) or ".DIV" in end.name
        if end.base not in jumps or (conditional and end.base != "BRX"):
            if b + 1 < len(starts):
                following.append(b + 1)
        # BRA.DIV goes to a slow way for warps whose threads have parted.
        if end.base == "BRA" and ".DIV" not in end.name and end.target in position:
            following.append(number[position[end.target]])
        blocks.append(Block(body, following))
    return blocks


def _reachable(blocks):
    seen, todo = {0}, [0]
    while todo:
        for n in blocks[todo.pop()].next:
            if n not in seen:
                seen.add(n)
                todo.append(n)
    return seen


def _dominators(blocks):
    """Of each block that can be reached, as sets."""
    live = sorted(_reachable(blocks))
    before = {b: [] for b in live}
    for b in live:
        for n in blocks[b].next:
            before[n].append(b)
    every = set(live)
    dom = {b: every for b in live}
    dom[0] = {0}
    changed = True
    while changed:
        changed = False
        for b in live:
            if b == 0:
                continue
            new = set.intersection(*(dom[p] for p in before[b])) | {b}
            if new != dom[b]:
                dom[b], changed = new, True
    return dom, before


def find_loops(blocks):
    """The natural loops; those with one head are one."""
    dom, before = _dominators(blocks)
    bodies = {}
    for b in dom:
        for head in blocks[b].next:
            if head in dom[b]:
                body, todo = bodies.setdefault(head, {head}), [b]
                while todo:
                    at = todo.pop()
                    if at not in body:
                        body.add(at)
                        todo += before[at]
    loops = [Loop(h, frozenset(body), []) for h, body in bodies.items()]
    for loop in loops:
        loop.inner = [o for o in loops if o is not loop and o.blocks < loop.blocks]
    return loops


def fast_path(blocks, loop):
    """The instructions of the way from the loop's head back to it that moves most bytes; of these in
    most 128-bit accesses; and of these the longest, since a full row skips nothing. An inner loop counts
    as run once."""
    order, state = [], {}

    def visit(b):  # depth first, without edges that go back
        stack = [(b, iter(blocks[b].next))]
        state[b] = "open"
        while stack:
            at, rest = stack[-1]
            for n in rest:
                if n in loop.blocks and n != loop.head and n not in state:
                    state[n] = "open"
                    stack.append((n, iter(blocks[n].next)))
                    break
            else:
                state[at] = "done"
                order.append(at)
                stack.pop()

    visit(loop.head)
    rank = {b: len(order) - k for k, b in enumerate(order)}
    best = {}  # block -> ((bytes, 128-bit accesses, instructions), next block), from it to the loop's end
    for b in order:
        code = blocks[b].code
        own = (sum(map(moved, code)), sum(moved(i) == 16 for i in code), len(code))
        ways = [(best[n][0], n) for n in blocks[b].next
                if n in loop.blocks and n != loop.head and rank[n] > rank[b] and n in best]
        if loop.head in blocks[b].next:
            ways.append(((0, 0, 0), None))
        if ways:
            further, following = max(ways, key=lambda way: way[0])
            best[b] = (tuple(map(sum, zip(own, further))), following)
    path, at = [], loop.head if loop.head in best else None
    while at is not None:
        path += blocks[at].code
        at = best[at][1]
    return path


def instructions(blocks, loop):
    return [i for b in sorted(loop.blocks) for i in blocks[b].code]
