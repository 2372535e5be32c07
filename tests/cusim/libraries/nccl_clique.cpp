#include "libraries/nccl_clique.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "check/check.h"
#include "libraries/nccl_fake.h"

namespace cusim {
namespace {

constexpr std::size_t kStreams = 4;
using Bytes = std::vector<char>;

Bytes read(const void* from, std::size_t bytes) {
  Bytes out(bytes);
  const DeviceAccess access;
  if (bytes > 0) std::memcpy(out.data(), from, bytes);
  return out;
}

void write(void* to, const char* from, std::size_t bytes) {
  if (bytes == 0 || !is_device_range(to, bytes)) return;
  const DeviceAccess access;
  std::memcpy(to, from, bytes);
  check::wrote(to, bytes);
}

template <class T>
T reduced(ncclRedOp_t op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ncclMax) return std::fmax(a, b);
    if (op == ncclMin) return std::fmin(a, b);
    return a + b;
  } else {
    if (op == ncclMax) return std::max(a, b);
    if (op == ncclMin) return std::min(a, b);
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

template <class T>
Bytes reduce_as(ncclRedOp_t op, const std::vector<Bytes>& from) {
  Bytes out(from[0].size());
  const std::size_t ranks = from.size(), count = out.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = (i / 3 + 1) % ranks;  // as in a ring: another one for each piece
    T sum{};
    for (std::size_t k = 0; k < ranks; ++k) {
      T next;
      std::memcpy(&next, from[(first + k) % ranks].data() + i * sizeof(T), sizeof(T));
      sum = k == 0 ? next : reduced(op, sum, next);
    }
    std::memcpy(out.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return out;
}

Bytes reduce(const NcclOp& op, const std::vector<Bytes>& from) {
  switch (op.type) {
    case ncclFloat32:
      return reduce_as<float>(op.op, from);
    case ncclFloat64:
      return reduce_as<double>(op.op, from);
    case ncclInt32:
      return reduce_as<std::int32_t>(op.op, from);
    case ncclInt64:
      return reduce_as<std::int64_t>(op.op, from);
    default:
      return reduce_as<std::uint8_t>(op.op, from);
  }
}

/// One operation of the launch is done.
void finish(NcclLaunch& launch) {
  if (launch.ended || --launch.left > 0) return;
  launch.ended = true;
  launch.done.completed = 1;
  notify_waiting();
}

bool can_go(const NcclPart& part) { return !part.launch->ended && !part.launch->comm->stuck; }

}  // namespace

std::size_t NcclOp::bytes() const noexcept {
  switch (type) {
    case ncclFloat32:
    case ncclInt32:
      return count * 4;
    case ncclFloat64:
    case ncclInt64:
      return count * 8;
    default:
      return count;
  }
}
std::size_t NcclOp::from_bytes(int ranks) const noexcept {
  if (kind == NcclKind::receive) return 0;
  return kind == NcclKind::reduce_scatter ? bytes() * static_cast<std::size_t>(ranks) : bytes();
}
std::size_t NcclOp::to_bytes(int ranks) const noexcept {
  if (kind == NcclKind::send) return 0;
  return kind == NcclKind::all_gather ? bytes() * static_cast<std::size_t>(ranks) : bytes();
}
bool NcclOp::fits(const NcclOp& other) const noexcept {
  return kind == other.kind && count == other.count && type == other.type && op == other.op &&
         peer == other.peer;
}

void NcclClique::run(std::function<void()> work) {
  static auto& streams = *new std::vector<cudaStream_t>;  // of all cliques
  while (streams.size() < kStreams) streams.push_back(library_stream());
  append(streams[random_below(kStreams)], std::move(work));
}

void NcclClique::arrive(NcclLaunch& launch) {
  if (launch.ended) return;
  const int own = launch.comm->rank;
  for (const NcclOp& op : launch.ops) {
    if (op.kind == NcclKind::send) {
      pairs[{own, op.peer}].sends.push_back({&launch, op});
    } else if (op.kind == NcclKind::receive) {
      pairs[{op.peer, own}].receives.push_back({&launch, op});
    } else {
      const std::uint64_t number = launch.comm->collectives++;
      auto& parts = collectives[number];
      parts.resize(static_cast<std::size_t>(size));
      parts[static_cast<std::size_t>(own)] = {&launch, op};
      if (std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.launch; })) {
        meet(std::move(parts));
        collectives.erase(number);
      }
    }
  }
  for (auto& [ranks, pair] : pairs) {
    while (!pair.sends.empty() && !pair.receives.empty()) {
      transfer(pair.sends.front(), pair.receives.front());
      pair.sends.pop_front();
      pair.receives.pop_front();
    }
  }
}

/// All ranks are there. What they give is read now, and each gets its result at its own time.
void NcclClique::meet(std::vector<NcclPart> parts) {
  const NcclOp& op = parts[0].op;
  for (const NcclPart& p : parts)
    if (!can_go(p) || !p.op.fits(op)) return;  // hangs
  std::vector<Bytes> from;
  for (const NcclPart& p : parts) from.push_back(read(p.op.from, p.op.from_bytes(size)));
  auto result = std::make_shared<Bytes>();
  if (op.kind == NcclKind::broadcast) {
    *result = from[static_cast<std::size_t>(op.peer)];
  } else if (op.kind == NcclKind::all_gather) {
    for (const Bytes& b : from) result->insert(result->end(), b.begin(), b.end());
  } else {
    *result = reduce(op, from);
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const std::size_t at = op.kind == NcclKind::reduce_scatter ? r * op.bytes() : 0;
    run([this, part = parts[r], result, at] {
      if (!can_go(part)) return;
      ++mutable_nccl_stats().transfers;
      write(part.op.to, result->data() + at, part.op.to_bytes(size));
      finish(*part.launch);
    });
  }
}

void NcclClique::transfer(const NcclPart& send, const NcclPart& receive) {
  if (!can_go(send) || !can_go(receive) || send.op.bytes() != receive.op.bytes()) return;  // hangs
  const auto data = std::make_shared<Bytes>(read(send.op.from, send.op.bytes()));
  run([launch = send.launch] { finish(*launch); });
  run([part = receive, data] {
    if (!can_go(part)) return;
    ++mutable_nccl_stats().transfers;
    write(part.op.to, data->data(), data->size());
    finish(*part.launch);
  });
}

void abandon(ncclComm_t comm) {
  comm->pending = nullptr;
  for (const auto& launch : comm->launches) {
    if (launch->ended) continue;
    launch->ended = true;
    for (const NcclOp& op : launch->ops) {
      const Bytes garbage(op.to_bytes(comm->size), static_cast<char>(0xff));
      write(op.to, garbage.data(), garbage.size());
    }
    launch->done.completed = 1;
  }
  notify_waiting();
}

}  // namespace cusim
