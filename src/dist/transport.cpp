// Calls in words, and whether all ranks make the same one.
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
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                   "all_to_all", "broadcast",      "barrier"};
  return kind <= CallKind::barrier ? names[static_cast<int>(kind)] : "unknown call";
}

std::string describe(const Call& call) {
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
    default:
      return to_string(call.kind);
  }
}

void check_same(int rank, std::span<const Call> calls) {
  const Call& own = calls[static_cast<std::size_t>(rank)];
  const auto other =
      std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call != own; });
  if (other == calls.end()) return;
  const int peer = static_cast<int>(other - calls.begin());
  throw RankError(to_string(own.kind), rank, peer,
                  fmt::format("rank {} calls {}, rank {} calls {}", rank, describe(own), peer,
                              describe(*other)),
                  "all ranks make the same calls in the same order, with tensors of one dtype and "
                  "number of elements");
}

}  // namespace firn::dist
