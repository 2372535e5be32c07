// Collectives: what lanes of a warp do together, and the block's barrier. Each is a rendezvous: the
// last thread to arrive computes the results of all and makes the others ready.
#include "check/check.h"
#include "engine/engine.h"

namespace cusim {

// ---- Warp operations ----

namespace {

/// The lane that lane i reads from in a shuffle.
int source_lane(const Rendezvous& r, int i) {
  const int first = i & ~(r.width - 1), last = first + r.width - 1;
  int source = i;
  switch (r.op) {
    case WarpOp::shuffle:
      return first + (r.argument[i] & (r.width - 1));
    case WarpOp::shuffle_up:
      source = i - r.argument[i];
      return source < first ? i : source;
    case WarpOp::shuffle_down:
      source = i + r.argument[i];
      return source > last ? i : source;
    default:  // shuffle_xor
      source = i ^ r.argument[i];
      return source > last ? i : source;
  }
}

bool is_shuffle(WarpOp op) { return op <= WarpOp::shuffle_xor; }

void complete(Warp& warp, Rendezvous& r) {
  const unsigned taking_part = r.arrived;
  const auto takes_part = [&](int lane) { return (taking_part >> lane & 1) != 0; };
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) {
    if (takes_part(i) && r.bits[i]) votes |= 1u << i;
  }
  for (int i = 0; i < 32; ++i) {
    if (!takes_part(i)) continue;
    Thread& thread = engine.threads[warp.first + static_cast<unsigned>(i)];
    if (is_shuffle(r.op)) {
      const int source = source_lane(r, i);
      if (!takes_part(source) && config().strict_shuffle) {
        fail("shuffle at %s:%u: lane %d reads lane %d, which takes no part",
             base_name(thread.where.file), thread.where.line, i, source);
      }
      thread.result = takes_part(source) ? r.bits[source] : ~std::uint64_t{0};
    } else if (r.op == WarpOp::ballot) {
      thread.result = votes;
    } else if (r.op == WarpOp::any) {
      thread.result = votes != 0;
    } else if (r.op == WarpOp::all) {
      thread.result = votes == taking_part;
    } else if (r.op == WarpOp::match_any) {
      thread.result = 0;
      for (int j = 0; j < 32; ++j) {
        if (takes_part(j) && r.bits[j] == r.bits[i]) thread.result |= 1u << j;
      }
    }
    make_ready(thread);
  }
  if (r.op == WarpOp::sync) {
    check::after_warp_sync(static_cast<unsigned>(&warp - engine.warps.data()),
                           taking_part == warp.alive);
  }
  r.mask = r.arrived = 0;
  --warp.waiting;
  ++engine.stats.warp_ops;
}

/// The rendezvous of these lanes that is under way, or a fresh one.
Rendezvous& rendezvous_for(Warp& warp, unsigned mask, WarpOp op, int width, const Location& where) {
  Rendezvous* unused = nullptr;
  for (Rendezvous& r : warp.rendezvous) {
    if (r.mask == mask) return r;
    if (r.mask == 0 && !unused) unused = &r;
    if (r.mask & mask & warp.alive) {
      fail("%s:%u: overlapping warp masks %08x and %08x wait at the same time",
           base_name(where.file), where.line, r.mask, mask);
    }
  }
  if (!unused) {
    fail("%s:%u: more than four groups of a warp wait at the same time", base_name(where.file),
         where.line);
  }
  unused->mask = mask;
  unused->arrived = 0;
  unused->op = op;
  unused->width = width;
  ++warp.waiting;
  return *unused;
}

}  // namespace

std::uint64_t warp_op(WarpOp op, unsigned mask, std::uint64_t bits, int argument, int width,
                      const Location& where) {
  const EngineCode scope;
  Thread& thread = *engine.current;
  thread.where = where;
  Warp& warp = engine.warps[thread.warp];
  const int lane = thread.lane;
  if (!(mask >> lane & 1)) {
    fail("%s:%u: the calling lane %d is not in its own mask %08x", base_name(where.file),
         where.line, lane, mask);
  }
  Rendezvous& r = rendezvous_for(warp, mask, op, width, where);
  if (r.op != op || r.width != width) {
    fail("%s:%u: lanes of one mask are in different warp operations", base_name(where.file),
         where.line);
  }
  for (int i = 0; i < 32; ++i) {
    if (!(r.arrived >> i & 1)) continue;
    const Location& other = engine.threads[warp.first + static_cast<unsigned>(i)].where;
    if (other.line != where.line) {
      fail("warp operation: lane %d is at %s:%u, lane %d at line %u", lane, base_name(where.file),
           where.line, i, other.line);
    }
    break;  // those there agree with each other
  }
  r.bits[lane] = bits;
  r.argument[lane] = argument;
  r.arrived |= 1u << lane;
  thread.state = State::at_warp_op;
  if (r.arrived == (mask & warp.alive)) complete(warp, r);  // lanes that ended are excused
  wait_here();
  return thread.result;
}

// ---- The block's barrier ----

namespace {

void complete_barrier() {
  const Thread* first = nullptr;
  int votes = 0;
  for (const Thread& t : engine.threads) {
    if (t.state != State::at_barrier) continue;
    votes += t.predicate != 0;
    if (!first) first = &t;
    if (t.where.line != first->where.line || t.where.file != first->where.file) {
      fail("divergent barrier: thread %u waits at %s:%u, thread %u at %s:%u", first->linear,
           base_name(first->where.file), first->where.line, t.linear, base_name(t.where.file),
           t.where.line);
    }
  }
  if (config().strict_exit && engine.alive != engine.threads.size()) {
    fail("barrier at %s:%u reached by %u of %zu threads; the others have ended",
         base_name(first->where.file), first->where.line, engine.alive, engine.threads.size());
  }
  int result = votes;
  if (engine.barrier_op == BarrierOp::all) {
    result = votes == static_cast<int>(engine.at_barrier);
  } else if (engine.barrier_op == BarrierOp::any) {
    result = votes > 0;
  }
  for (Thread& t : engine.threads) {
    if (t.state != State::at_barrier) continue;
    t.result = static_cast<std::uint64_t>(result);
    make_ready(t);
  }
  engine.at_barrier = 0;
  ++engine.stats.barriers;
  check::after_barrier();
}

}  // namespace

int barrier(BarrierOp op, int predicate, const Location& where) {
  const EngineCode scope;
  Thread& thread = *engine.current;
  thread.where = where;
  thread.predicate = predicate;
  thread.state = State::at_barrier;
  engine.barrier_op = op;
  if (++engine.at_barrier == engine.alive) complete_barrier();
  wait_here();
  return static_cast<int>(thread.result);
}

// ---- Fences and atomics: nothing to do, but check mode learns from them what orders blocks ----

void fence() {
  const EngineCode scope;
  check::after_fence();
}
void after_atomic([[maybe_unused]] const void* address) {
  const EngineCode scope;
  check::after_atomic(address);
}

void complete_without(Thread& ended) {
  Warp& warp = engine.warps[ended.warp];
  warp.alive &= ~(1u << ended.lane);
  if (warp.waiting) {
    for (Rendezvous& r : warp.rendezvous) {
      if (r.mask && r.arrived == (r.mask & warp.alive)) complete(warp, r);
    }
  }
  if (engine.at_barrier && engine.at_barrier == engine.alive) complete_barrier();
}

}  // namespace cusim
