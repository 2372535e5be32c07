#include "optim/store/arena.h"

#include <algorithm>

namespace firn::optim {

bool is_elementwise(const Arena& a) noexcept {
  return !a.whole &&
         !std::visit([](const auto& rule) { return math::has_trust_ratio(rule); }, a.rule);
}

std::int64_t unit_of(const Arena& a) noexcept {
  return is_eight_bit(a.rule) ? std::int64_t{math::kStateBlock}
                              : kArenaAlignment / static_cast<std::int64_t>(size_of(a.dtype));
}

const ArenaRun& run_of(const Arena& a, const StoredParameter& p) noexcept {
  const auto after = std::upper_bound(
      a.runs.begin(), a.runs.end(), p.begin,
      [](std::int64_t begin, const ArenaRun& run) { return begin < run.range.first; });
  return *(after - 1);
}

int owner_of(const Arena& a, const StoredParameter& p) noexcept {
  const auto& bounds = run_of(a, p).bounds;
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), p.begin);
  return static_cast<int>(after - bounds.begin()) - 1;
}

bool is_here(const Arena& a, const StoredParameter& p) noexcept {
  const ArenaRun& run = run_of(a, p);
  return p.begin >= run.kept.first && (run.bounds.empty() || p.begin < run.kept.last);
}

Share kept_of(const ArenaRun& run, const StoredParameter& p) noexcept {
  const std::int64_t end = p.begin + p.tensor.numel();
  const std::int64_t first = std::max(p.begin, run.kept.first);
  return {first, std::max(first, std::min(end, run.kept.last))};
}

std::int64_t grad_place(const Arena& a, const StoredParameter& p) noexcept {
  return a.grad.numel() < a.elements ? run_of(a, p).place_of(p.begin) : p.begin;
}

Tensor kept_part(const Tensor& kept, const ArenaRun& run, const Share& here) {
  return kept.as_strided({here.size()}, {1}, run.place_of(here.first));
}

Tensor weight_part(const Arena& a, const ArenaRun& run, const Share& here) {
  if (a.weight.numel() < a.elements) return kept_part(a.weight, run, here);
  return a.weight.as_strided({here.size()}, {1}, here.first);
}

}  // namespace firn::optim
