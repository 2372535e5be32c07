// How an optimizer learns of a group: its ranks are compared, and it is given a way to reach them.
#include "firn/dist/distribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "base/check.h"
#include "kernels/copy.h"
#include "kernels/value_hash.h"
#include "optim/describe.h"
#include "optim/impl.h"
#include "optim/store/division.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "distribute";

class GroupPeers final : public autograd::Peers {
 public:
  explicit GroupPeers(Group group)
      : group_(std::move(group)),
        failed_(zeros({1}, DType::u8, Device::cpu())),
        all_failed_(zeros({group_.size()}, DType::u8, Device::cpu())) {}

  int rank() const noexcept override { return group_.rank(); }
  int size() const noexcept override { return group_.size(); }
  void all_gather(const Tensor& part, const Tensor& all) const override {
    group_.all_gather(part, all);
  }
  void all_reduce(const Tensor& x) const override { group_.all_reduce(x); }
  void broadcast(const Tensor& x, int root) const override { group_.broadcast(x, root); }
  void all_to_all(const Tensor& from, const Tensor& to) const override {
    group_.all_to_all(from, to);
  }

  void agree(const char* op, bool failed) const override {
    *failed_.mutable_view().as<std::uint8_t>() = failed ? 1 : 0;
    group_.all_gather(failed_, all_failed_);
    const auto* const all = all_failed_.view().as<std::uint8_t>();
    for (int r = 0; r < size() && !failed; ++r)
      if (all[r] != 0)
        throw RankError(op, rank(), r, fmt::format("rank {} has failed", r), "its error says why");
  }

 private:
  Group group_;
  Tensor failed_, all_failed_;  ///< u8: of this rank; of all
};

/// The hash of a tensor's values, whatever its strides.
std::int64_t hash_of(const Tensor& t) {
  const Tensor sum = zeros({1}, DType::i64, Device::cpu());
  if (t.numel() > 0) kernels::value_hash(t.view(), sum.mutable_view(), current_stream(t.device()));
  return *sum.view().as<std::int64_t>();
}

/// Every rank's `mine`, rank after rank.
std::vector<std::int64_t> gather(const Group& group, const std::vector<std::int64_t>& mine) {
  const auto n = static_cast<std::int64_t>(mine.size());
  const Tensor part = zeros({n}, DType::i64, Device::cpu());
  std::memcpy(part.mutable_view().as<std::int64_t>(), mine.data(), part.bytes());
  const Tensor all = zeros({group.size() * n}, DType::i64, Device::cpu());
  group.all_gather(part, all);
  const auto* begin = all.view().as<std::int64_t>();
  return {begin, begin + all.numel()};
}

/// What must be the same on all ranks, a line for each thing.
std::string kind_of(const optim::Optimizer& optimizer, const std::vector<optim::NamedState>& state,
                    int zero) {
  const auto& step = optim::OptimizerAccess::impl(optimizer).options;
  std::string out = fmt::format("{}, {} micro-steps per step, max_skips {}, ZeRO stage {}",
                                optim::describe_settings(optimizer), optimizer.cycle_length(),
                                step.max_skips, zero);
  for (const auto& [name, t] : state) out += fmt::format("\n{} {}", name, describe(t));
  return out;
}

/// Every rank's text.
std::vector<std::string> gather(const Group& group, const std::string& mine) {
  const auto lengths = gather(group, std::vector{static_cast<std::int64_t>(mine.size())});
  const std::int64_t most = *std::max_element(lengths.begin(), lengths.end());
  const Tensor part = zeros({most}, DType::u8, Device::cpu());
  std::memcpy(part.mutable_view().as<std::uint8_t>(), mine.data(), mine.size());
  const Tensor all = zeros({group.size() * most}, DType::u8, Device::cpu());
  group.all_gather(part, all);
  std::vector<std::string> out;
  const auto* texts = reinterpret_cast<const char*>(all.view().as<std::uint8_t>());
  for (std::size_t r = 0; r < lengths.size(); ++r)
    out.emplace_back(texts + static_cast<std::int64_t>(r) * most,
                     static_cast<std::size_t>(lengths[r]));
  return out;
}

/// The first line in which the two differ.
std::pair<std::string, std::string> difference(const std::string& a, const std::string& b) {
  const std::size_t at = static_cast<std::size_t>(
      std::mismatch(a.begin(),
                    a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
  const auto line = [at](const std::string& text) {
    const std::size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  return {line(a), line(b)};
}

void require_alike(const Group& group, const std::string& kind, std::int64_t micro_steps) {
  const auto steps = gather(group, std::vector{micro_steps});
  for (std::size_t r = 0; r < steps.size(); ++r)
    FIRN_CHECK(steps[r] == 0, kOp, "end it with step() or flush(), or drop it with zero_grad()",
               "a cycle of rank {} is under way: it has {} micro-steps", r, steps[r]);
  const auto kinds = gather(group, kind);
  for (std::size_t r = 1; r < kinds.size(); ++r) {
    if (kinds[r] == kinds[0]) continue;
    const auto [theirs, zeros] = difference(kinds[r], kinds[0]);
    detail::fail(kOp, "make the same model and the same optimizer on every rank",
                 "the optimizer of rank {} is not like that of rank 0: \"{}\" and \"{}\"", r,
                 theirs, zeros);
  }
}

void require_equal(const Group& group, const std::vector<optim::NamedState>& state) {
  std::vector<std::int64_t> mine;
  for (const auto& s : state) mine.push_back(hash_of(s.tensor));
  const auto all = gather(group, mine);
  for (std::size_t r = 1; r < static_cast<std::size_t>(group.size()); ++r)
    for (std::size_t i = 0; i < mine.size(); ++i)
      FIRN_CHECK(all[r * mine.size() + i] == all[i], kOp,
                 "seed all ranks alike before the model is made, or set {.broadcast = true}",
                 "{} of rank {} has other values than that of rank 0", state[i].name, r);
}

void broadcast(const Group& group, const Tensor& t) {
  if (t.is_contiguous()) return group.broadcast(t);
  const Tensor flat = t.contiguous();
  group.broadcast(flat);
  kernels::copy(flat.view(), t.mutable_view(), current_stream(t.device()));
  t.storage()->bump_version(kOp);
}

}  // namespace

void distribute(optim::Optimizer& optimizer, const Group& group,
                const DistributeOptions& options) try {
  auto& impl = optim::OptimizerAccess::impl(optimizer);
  impl.require_outside_batch("distribute()");
  FIRN_CHECK(options.zero == 0 || options.zero == 1, kOp, "0 or 1",
             "ZeRO stage {}, and gradients and weights are kept whole on each rank", options.zero);
  FIRN_CHECK(!impl.store.divided(), kOp, "make a new optimizer, and load a saved run into it",
             "the optimizer's state is divided over {} ranks already", impl.ranks->peers().size());
  if (group.size() == 1) return impl.ranks.reset();
  FIRN_CHECK(impl.store.device().is_cpu(), kOp, "move the model to the CPU",
             "the parameters are on {}, and ranks exchange gradients on the CPU",
             impl.store.device());
  FIRN_CHECK(group.device().is_cpu(), kOp, "give the group of run_local() or mpi_group()",
             "the group is on {}, and ranks exchange gradients on the CPU", group.device());
  const std::vector<optim::NamedState> state = optimizer.state();
  require_alike(group, kind_of(optimizer, state, options.zero),
                impl.cycle_is_empty() ? 0 : std::max<std::int64_t>(impl.at.micro_steps, 1));
  if (options.broadcast) {
    for (const auto& s : state) broadcast(group, s.tensor);
  } else {
    require_equal(group, state);
  }
  const auto peers = std::make_shared<GroupPeers>(group);
  std::shared_ptr<optim::ParamStore::Division> division;
  if (options.zero > 0)
    autograd::on_every_rank(kOp, peers.get(), [&] {
      division = impl.store.prepare_division(group.rank(), group.size());
    });
  static std::atomic<std::int64_t> made{0};
  impl.take_part(peers, gather(group, std::vector{++made})[0]);
  if (division) impl.store.divide(*division);
}
FIRN_OUT_OF_MEMORY("distribute")

}  // namespace firn::dist
