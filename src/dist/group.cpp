// Group: checks the tensors that collectives take. Also the group of one rank.
#include "firn/dist/group.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "base/check.h"
#include "dist/combine.h"
#include "dist/transport.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/storage.h"
#include "tensor/impl.h"
#include "tensor/overlap.h"

namespace firn::dist {
namespace {

class One final : public Transport {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  std::string_view kind() const noexcept override { return "one"; }
  double deadline() const noexcept override { return std::numeric_limits<double>::infinity(); }
  void run(const Call& call, const void* from, void* to) override {
    if (from != to && call.count > 0) std::memcpy(to, from, call.bytes());
  }
  void give_up(std::string_view) noexcept override {}  // no other rank waits
};

const std::shared_ptr<Transport>& one() {
  static const auto& transport = *new std::shared_ptr<Transport>(std::make_shared<One>());
  return transport;
}

void check_tensor(const char* op, const Tensor& t, Device device) {
  require_defined(op, t);
  FIRN_CHECK(t.device() == device, op,
             device.is_cpu() ? "move it with to(Device::cpu()) and copy_() the result back"
                             : "move it with to(group.device()) and copy_() the result back",
             "{} is not on {}", describe(t), device.is_cpu() ? "the CPU" : to_string(device));
  FIRN_CHECK(t.is_contiguous(), op, "give contiguous(), and copy_() the result back",
             "{} is not contiguous", describe(t));
}

void check_combines(const char* op, const Tensor& t) {
  FIRN_CHECK(can_combine(t.dtype()), op,
             is_floating(t.dtype()) ? "cast it to f32, in which firn adds up gradients"
                                    : "cast it to u8 or i32",
             "{} is not f32, f64, i32, i64 or u8", describe(t));
}

/// Throws unless `whole` has `parts` parts of the size and dtype of `part`.
void check_parts(const char* op, const Tensor& whole, const Tensor& part, int parts) {
  FIRN_CHECK(whole.dtype() == part.dtype(), op, "both have one dtype", "{} and {}", describe(whole),
             describe(part));
  FIRN_CHECK(whole.numel() % parts == 0 && whole.numel() / parts == part.numel(), op,
             "pad the elements to a multiple of the ranks",
             "{} is not {} parts, one for each rank, of the size of {}", describe(whole), parts,
             describe(part));
}

/// Throws unless the two do not overlap, or `part` is part `rank` of `whole`.
void check_own_part(const char* op, const Tensor& whole, const Tensor& part, int rank) {
  if (!share_memory(whole.view(), part.view())) return;
  const auto* own =
      static_cast<const char*>(whole.view().data) + static_cast<std::size_t>(rank) * part.bytes();
  FIRN_CHECK(part.view().data == own, op, "give a tensor of its own, or this rank's part",
             "{} lies in {}, but not where part {} is", describe(part), describe(whole), rank);
}

void run(Transport& transport, const Call& call, const Tensor& from, const Tensor& to) {
  if (runtime::dry_run()) return transport.plan(call);
  const runtime::Span span(runtime::SpanKind::phase, to_string(call.kind));
  try {
    transport.run(call, from.view().data, to.mutable_view().data);
  } catch (...) {
    if (transport.keeps_memory()) {  // takes a reference that is never released
      from.storage()->retain();
      to.storage()->retain();
    }
    throw;
  }
}

/// Returns one direction of a message with rank `peer`, after checking it.
Message message_of(const char* op, const Group& group, const Tensor& x, int peer, CallKind kind) {
  check_tensor(op, x, group.device());
  FIRN_CHECK(peer >= 0 && peer < group.size(), op, "ranks count from 0", "rank {} of {} ranks",
             peer, group.size());
  FIRN_CHECK(peer != group.rank(), op, "copy_() copies within a rank",
             "a message of rank {} to itself", peer);
  Message out{.call = {.kind = kind, .dtype = x.dtype(), .root = peer, .count = x.numel()}};
  if (kind == CallKind::send) {
    out.from = x.view().data;
  } else {
    autograd::check_overwrite(op, x);
    out.to = x.mutable_view().data;
  }
  return out;
}

void exchange_messages(Transport& transport, std::span<const Message> messages,
                       std::initializer_list<const Tensor*> tensors) {
  if (runtime::dry_run()) return;
  const runtime::Span span(runtime::SpanKind::phase, "message");
  try {
    transport.exchange_messages(messages);
  } catch (...) {
    if (transport.keeps_memory())
      for (const Tensor* t : tensors) t->storage()->retain();
    throw;
  }
}

/// Returns the part of `rank`. `given` has the color and the key of each rank.
SplitPart part_of(const std::int64_t* given, int rank, int size) {
  SplitPart out;
  std::vector<std::int64_t> colors;
  const std::int64_t color = given[2 * rank];
  for (int r = 0; r < size; ++r) {
    if (std::find(colors.begin(), colors.end(), given[2 * r]) == colors.end())
      colors.push_back(given[2 * r]);
    if (given[2 * r] == color) out.members.push_back(r);
  }
  std::stable_sort(out.members.begin(), out.members.end(),
                   [&](int a, int b) { return given[2 * a + 1] < given[2 * b + 1]; });
  out.index = static_cast<int>(std::find(colors.begin(), colors.end(), color) - colors.begin());
  out.rank = static_cast<int>(std::find(out.members.begin(), out.members.end(), rank) -
                              out.members.begin());
  return out;
}

}  // namespace

RankError::RankError(std::string_view call, int rank, int peer, std::string_view message,
                     std::string_view hint)
    : Error(call, message, hint), rank_(rank), peer_(peer) {}

Group::Group() : transport_(one()) {}

Group::Group(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {
  FIRN_CHECK(transport_ != nullptr, "Group", "Group() is the group of one rank",
             "there is no transport");
}

int Group::rank() const noexcept { return transport_->rank(); }
int Group::size() const noexcept { return transport_->size(); }
std::string_view Group::kind() const noexcept { return transport_->kind(); }
Device Group::device() const noexcept { return transport_->device(); }
Group Group::host() const { return transport_->host().value_or(*this); }
double Group::deadline() const noexcept { return transport_->deadline(); }

void Group::all_reduce(const Tensor& x, Reduce op) const try {
  constexpr const char* kOp = "all_reduce";
  require_named(kOp, "Reduce", op, Reduce::min);
  check_tensor(kOp, x, device());
  check_combines(kOp, x);
  autograd::check_overwrite(kOp, x);
  const Call call{
      .kind = CallKind::all_reduce, .dtype = x.dtype(), .reduce = op, .count = x.numel()};
  run(*transport_, call, x, x);
  x.storage()->bump_version(kOp);
}
FIRN_OUT_OF_MEMORY("all_reduce")

void Group::reduce_scatter(const Tensor& x, const Tensor& part, Reduce op) const try {
  constexpr const char* kOp = "reduce_scatter";
  require_named(kOp, "Reduce", op, Reduce::min);
  check_tensor(kOp, x, device());
  check_tensor(kOp, part, device());
  check_combines(kOp, x);
  check_parts(kOp, x, part, size());
  check_own_part(kOp, x, part, rank());
  autograd::check_overwrite(kOp, part);
  const Call call{
      .kind = CallKind::reduce_scatter, .dtype = x.dtype(), .reduce = op, .count = part.numel()};
  run(*transport_, call, x, part);
  part.storage()->bump_version(kOp);
}
FIRN_OUT_OF_MEMORY("reduce_scatter")

void Group::all_gather(const Tensor& part, const Tensor& all) const try {
  constexpr const char* kOp = "all_gather";
  check_tensor(kOp, part, device());
  check_tensor(kOp, all, device());
  check_parts(kOp, all, part, size());
  check_own_part(kOp, all, part, rank());
  autograd::check_overwrite(kOp, all);
  run(*transport_, {.kind = CallKind::all_gather, .dtype = part.dtype(), .count = part.numel()},
      part, all);
  all.storage()->bump_version(kOp);
}
FIRN_OUT_OF_MEMORY("all_gather")

void Group::all_to_all(const Tensor& from, const Tensor& to) const try {
  constexpr const char* kOp = "all_to_all";
  check_tensor(kOp, from, device());
  check_tensor(kOp, to, device());
  FIRN_CHECK(from.dtype() == to.dtype() && from.numel() == to.numel(), kOp,
             "both have one dtype and number of elements", "{} and {}", describe(from),
             describe(to));
  FIRN_CHECK(from.numel() % size() == 0, kOp, "pad the elements to a multiple of the ranks",
             "{} is not {} equal parts, one for each rank", describe(from), size());
  FIRN_CHECK(!share_memory(from.view(), to.view()), kOp, "give a tensor of its own",
             "{} and {} have memory in common", describe(from), describe(to));
  autograd::check_overwrite(kOp, to);
  run(*transport_,
      {.kind = CallKind::all_to_all, .dtype = from.dtype(), .count = from.numel() / size()}, from,
      to);
  to.storage()->bump_version(kOp);
}
FIRN_OUT_OF_MEMORY("all_to_all")

void Group::broadcast(const Tensor& x, int root) const try {
  constexpr const char* kOp = "broadcast";
  check_tensor(kOp, x, device());
  FIRN_CHECK(root >= 0 && root < size(), kOp, "ranks count from 0", "rank {} of {} ranks", root,
             size());
  autograd::check_overwrite(kOp, x);
  const Call call{
      .kind = CallKind::broadcast, .dtype = x.dtype(), .root = root, .count = x.numel()};
  run(*transport_, call, x, x);
  x.storage()->bump_version(kOp);
}
FIRN_OUT_OF_MEMORY("broadcast")

void Group::barrier() const try {
  if (runtime::dry_run()) return;
  const runtime::Span span(runtime::SpanKind::phase, "barrier");
  transport_->run({}, nullptr, nullptr);
}
FIRN_OUT_OF_MEMORY("barrier")

Group Group::split(int color, int key) const try {
  constexpr const char* kOp = "split";
  FIRN_CHECK(!runtime::dry_run(), kOp, "split it before, and use its parts in the step",
             "a group cannot be split in a dry run, in which nothing is exchanged");
  if (size() == 1) return *this;
  const Group hosts = host();
  const Call call{.kind = CallKind::all_gather, .dtype = DType::i64, .of_split = 1, .count = 2};
  transport_->announce(call);
  Tensor mine, all;
  on_every_rank(
      *hosts.transport_, kOp,
      [&] {
        mine = empty({2}, DType::i64, Device::cpu());
        all = empty({2 * size()}, DType::i64, Device::cpu());
      },
      true);
  mine.mutable_view().as<std::int64_t>()[0] = color;
  mine.mutable_view().as<std::int64_t>()[1] = key;
  dist::run(*hosts.transport_, call, mine, all);
  std::shared_ptr<Transport> part;
  on_every_rank(
      *hosts.transport_, kOp,
      [&] { part = transport_->split(part_of(all.view().as<std::int64_t>(), rank(), size())); },
      true);
  part->connect();
  return Group(std::move(part));
}
FIRN_OUT_OF_MEMORY("split")

void Group::send(const Tensor& x, int to) const try {
  const Message messages[] = {message_of("send", *this, x, to, CallKind::send)};
  exchange_messages(*transport_, messages, {&x});
}
FIRN_OUT_OF_MEMORY("send")

void Group::recv(const Tensor& x, int from) const try {
  const Message messages[] = {message_of("recv", *this, x, from, CallKind::recv)};
  exchange_messages(*transport_, messages, {&x});
  x.storage()->bump_version("recv");
}
FIRN_OUT_OF_MEMORY("recv")

void Group::send_recv(const Tensor& x, int to, const Tensor& y, int from) const try {
  constexpr const char* kOp = "send_recv";
  const Message messages[] = {message_of(kOp, *this, x, to, CallKind::send),
                              message_of(kOp, *this, y, from, CallKind::recv)};
  FIRN_CHECK(!share_memory(x.view(), y.view()), kOp, "give a tensor of its own",
             "{} and {} have memory in common", describe(x), describe(y));
  exchange_messages(*transport_, messages, {&x, &y});
  y.storage()->bump_version(kOp);
}
FIRN_OUT_OF_MEMORY("send_recv")

}  // namespace firn::dist
