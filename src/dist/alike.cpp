#include "dist/alike.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/value_hash.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "distribute";

/// Returns a hash of a tensor's values that does not depend on its strides.
std::int64_t hash_of(const Tensor& t) {
  const Tensor sum = zeros({1}, DType::i64, t.device());
  if (t.numel() > 0) kernels::value_hash(t.view(), sum.mutable_view(), current_stream(t.device()));
  return sum.to_vector<std::int64_t>()[0];
}

/// Returns the first line of each text in which the two differ.
std::pair<std::string_view, std::string_view> difference(std::string_view a, std::string_view b) {
  const auto at = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto line = [at](std::string_view text) {
    const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  return {line(a), line(b)};
}

const char* order_of(std::int64_t format) noexcept {
  return static_cast<MemoryFormat>(format) == MemoryFormat::contiguous ? "contiguous"
                                                                       : "channels-last";
}

}  // namespace

std::vector<std::int64_t> formats_of(const optim::ParamStore& store) {
  std::vector<std::int64_t> out;
  for (const optim::StoredParameter& p : store.places())
    out.push_back(static_cast<std::int64_t>(format_of(p.tensor.shape(), p.tensor.strides())));
  return out;
}

bool is_of_optimizer(const optim::NamedState& s) {
  return s.name == "step_state" || s.name == "loss_scale" || s.name == "schedule" ||
         s.name == "cycle";
}

Comparison::Comparison(Group group, OptimizerFacts mine)
    : group_(std::move(group)), mine_(std::move(mine)), numbers_(mine_.formats) {
  for (const optim::NamedState& s : mine_.state) numbers_.push_back(hash_of(s.tensor));
  constexpr auto n = static_cast<std::int64_t>(sizeof(Size) / sizeof(std::int64_t));
  size_ = zeros({n}, DType::i64, Device::cpu());
  sizes_ = zeros({group_.size() * n}, DType::i64, Device::cpu());
  const Size size{mine_.micro_steps, mine_.number, static_cast<std::int64_t>(mine_.kind.size()),
                  static_cast<std::int64_t>(numbers_.size())};
  std::memcpy(size_.mutable_view().as<std::int64_t>(), &size, sizeof size);
}

void Comparison::reserve() {
  std::int64_t most = 8;
  for (std::size_t r = 0; r < static_cast<std::size_t>(group_.size()); ++r) {
    const Size size = size_of(r);
    const std::int64_t bytes = size.text + size.numbers * 8;
    most = std::max(most, (bytes + 7) / 8 * 8);
  }
  fact_ = zeros({most}, DType::u8, Device::cpu());
  facts_ = zeros({group_.size() * most}, DType::u8, Device::cpu());
  std::uint8_t* const to = fact_.mutable_view().as<std::uint8_t>();
  const std::size_t bytes = numbers_.size() * 8;
  if (bytes > 0) std::memcpy(to, numbers_.data(), bytes);
  if (!mine_.kind.empty()) std::memcpy(to + bytes, mine_.kind.data(), mine_.kind.size());
}

Comparison::Size Comparison::size_of(std::size_t rank) const {
  Size out;
  std::memcpy(&out, sizes_.view().as<std::int64_t>() + rank * (sizeof out / 8), sizeof out);
  return out;
}

const std::int64_t* Comparison::numbers_of(std::size_t rank) const {
  const auto* const facts = facts_.view().as<std::uint8_t>();
  return reinterpret_cast<const std::int64_t*>(facts + rank * fact_.bytes());
}

std::string_view Comparison::text_of(std::size_t rank) const {
  const Size size = size_of(rank);
  return {reinterpret_cast<const char*>(numbers_of(rank) + size.numbers),
          static_cast<std::size_t>(size.text)};
}

void Comparison::require_alike(const optim::ParamStore& store) const {
  const auto ranks = static_cast<std::size_t>(group_.size());
  for (std::size_t r = 0; r < ranks; ++r)
    FIRN_CHECK(size_of(r).micro_steps == 0, kOp,
               "end it with step() or flush(), or drop it with zero_grad()",
               "a cycle of rank {} is under way: it has {} micro-steps", r, size_of(r).micro_steps);
  for (std::size_t r = 1; r < ranks; ++r) {
    if (text_of(r) == text_of(0)) continue;
    const auto [theirs, zeros] = difference(text_of(r), text_of(0));
    detail::fail(kOp,
                 "make the same model and the same optimizer on every rank, and give the same "
                 "options",
                 "the optimizer of rank {} is not like that of rank 0: \"{}\" and \"{}\"", r,
                 theirs, zeros);
  }
  // Equal texts list the same parameters and state.
  const std::int64_t* const zero = numbers_of(0);
  for (std::size_t r = 1; r < ranks; ++r)
    for (std::size_t i = 0; i < mine_.formats.size(); ++i)
      FIRN_CHECK(numbers_of(r)[i] == zero[i], kOp,
                 "call contiguous() or channels_last() on it alike on every rank, before the "
                 "optimizer is made",
                 "{}, is {} on rank {} and {} on rank 0", store.label(i),
                 order_of(numbers_of(r)[i]), r, order_of(zero[i]));
  for (std::size_t r = 1; r < ranks; ++r)
    for (std::size_t i = 0; i < mine_.state.size(); ++i) {
      const std::size_t at = mine_.formats.size() + i;
      FIRN_CHECK(numbers_of(r)[at] == zero[at], kOp,
                 is_of_optimizer(mine_.state[i])
                     ? "give the optimizers of all ranks the same options, or set {.broadcast = "
                       "true}"
                     : "seed all ranks alike before the model is made, or set {.broadcast = true}",
                 "{} of rank {} has other values than that of rank 0", mine_.state[i].name, r);
    }
}

}  // namespace firn::dist
