// Texts for calls, and the check that all ranks make the same call.
#include "dist/transport.h"

#include <algorithm>

#include "base/check.h"

namespace firn::dist {
namespace {

const char* to_string(Reduce reduce) noexcept {
  constexpr const char* names[] = {"sum", "max", "min"};
  return reduce <= Reduce::min ? names[static_cast<int>(reduce)] : "unknown";
}

}  // namespace

const char* to_string(CallKind kind) noexcept {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                   "broadcast",  "barrier",        "send",       "recv"};
  return kind <= CallKind::recv ? names[static_cast<int>(kind)] : "unknown call";
}

std::string describe(const Call& call) {
  if (call.of_split) return "split";
  const std::string what = fmt::format("{} {}", call.count, firn::to_string(call.dtype));
  switch (call.kind) {
    case CallKind::all_reduce:
      return fmt::format("all_reduce({}) of {}", to_string(call.reduce), what);
    case CallKind::reduce_scatter:
      return fmt::format("reduce_scatter({}) to parts of {}", to_string(call.reduce), what);
    case CallKind::all_gather:
    case CallKind::all_to_all:
      return fmt::format("{} with parts of {}", to_string(call.kind), what);
    case CallKind::broadcast:
      return fmt::format("broadcast from rank {} of {}", call.root, what);
    case CallKind::send:
      return fmt::format("send of {} to rank {}", what, call.root);
    case CallKind::recv:
      return fmt::format("recv of {} from rank {}", what, call.root);
    default:
      return to_string(call.kind);
  }
}

std::string name_of(int rank, std::span<const int> of_all) {
  if (of_all.empty() || rank < 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (rank {} of all)", rank, of_all[static_cast<std::size_t>(rank)]);
}

void throw_unlike(int rank, const Call& own, const Call& other, std::span<const int> of_all) {
  throw RankError(to_string(own.kind), rank, own.root,
                  fmt::format("{} calls {}, {} calls {}", name_of(rank, of_all), describe(own),
                              name_of(own.root, of_all), describe(other)),
                  own.kind == other.kind
                      ? "one sends and the other receives; send_recv() does both at once"
                      : "both ranks give tensors of one dtype and number of elements");
}

void Transport::exchange_messages(std::span<const Message> messages) {
  detail::fail(to_string(messages.front().call.kind), "use collectives",
               "groups of kind \"{}\" have no messages between two ranks", kind());
}

std::shared_ptr<Transport> Transport::split(const SplitPart&) {
  detail::fail("split", "", "groups of kind \"{}\" cannot be split", kind());
}

void check_same(int rank, std::span<const Call> calls, std::span<const int> of_all) {
  const Call& own = calls[static_cast<std::size_t>(rank)];
  const auto other =
      std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call != own; });
  if (other == calls.end()) return;
  const int peer = static_cast<int>(other - calls.begin());
  throw RankError(to_string(own.kind), rank, peer,
                  fmt::format("{} calls {}, {} calls {}", name_of(rank, of_all), describe(own),
                              name_of(peer, of_all), describe(*other)),
                  "all ranks make the same calls in the same order, with tensors of one dtype and "
                  "number of elements");
}

void require_done(const char* op, int rank, int size, int failed, int out_of_memory,
                  autograd::Outcome mine) {
  using autograd::Outcome;
  if (failed < size && mine != Outcome::failed)
    throw RankError(op, rank, failed, fmt::format("rank {} has failed", failed),
                    "its error says why");
  if (out_of_memory < size && mine == Outcome::done)
    throw OutOfMemory(fmt::format("[{}] rank {} of {} ran out of memory", op, out_of_memory, size),
                      0);
}

void agree(Transport& transport, const char* op, autograd::Outcome mine, bool of_split) {
  using autograd::Outcome;
  const std::int64_t rank = transport.rank(), size = transport.size();
  std::int64_t first[] = {mine == Outcome::failed ? rank : size,
                          mine == Outcome::out_of_memory ? rank : size};
  transport.run({.kind = CallKind::all_reduce,
                 .dtype = DType::i64,
                 .reduce = Reduce::min,
                 .of_split = of_split,
                 .count = 2},
                first, first);
  require_done(op, transport.rank(), transport.size(), static_cast<int>(first[0]),
               static_cast<int>(first[1]), mine);
}

}  // namespace firn::dist
