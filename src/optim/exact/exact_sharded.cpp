// Exact mode with sharded gradients. Each rank has its shard of the gradients of all ranks' chunks,
// and adds these up in the tree by itself.
#include <utility>

#include "kernels/copy.h"
#include "optim/exact/exact_sums.h"

namespace firn::optim {

void ExactSums::begin_micro_step(const ParamStore& store, std::span<const CycleSums> sums) {
  for (std::size_t r = 0; r < sources_.size(); ++r) {
    Source& s = sources_[r];
    advance(s, store.stream());
    if (s.is_done()) continue;
    s.sums = sums.empty() ? CycleSums() : sums[r];
    s.place = std::move(free_.back());
    free_.pop_back();
  }
}

void ExactSums::end_micro_step(const ParamStore& store) {
  for (Source& s : sources_) {
    if (s.place.empty()) continue;
    s.stack.push(s.work.items[s.next++].range,
                 Part{.sums = s.sums, .gradients = std::move(s.place)},
                 [&](Part& left, Part& right) { add(left, right, false, store.stream()); });
    s.place.clear();
  }
}

CycleSums ExactSums::fold_parts(const ParamStore& store) {
  const auto add_up = [&](Part& left, Part& right) { add(left, right, false, store.stream()); };
  for (Source& s : sources_) {
    for (auto& entry : s.stack.entries()) tree_.push(entry.range, std::move(entry.value), add_up);
    s.stack.clear();
  }
  Part& root = tree_.fold(add_up);
  const std::vector<Tensor>& kept = store.gradients();
  for (std::size_t a = 0; a < kept.size(); ++a)
    if (kept[a].numel() > 0)
      kernels::copy(root.gradients[a].view(), kept[a].mutable_view(), store.stream());
  free_.push_back(std::move(root.gradients));
  const CycleSums sums = root.sums;
  tree_.clear();
  return sums;
}

}  // namespace firn::optim
