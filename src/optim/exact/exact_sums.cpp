// The tree of sums of one rank's chunks, and the sum over all ranks' nodes.
#include "optim/exact/exact_sums.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "firn/random.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/store/flat.h"

namespace firn::optim {
namespace {

void copy_gradient(const Tensor& from, const Tensor& to, Stream stream) {
  kernels::copy(from.view(), to.mutable_view(), stream);
}

}  // namespace

ExactSums::LockStep ExactSums::begin(const ParamStore& store, std::int64_t chunks,
                                     const autograd::Peers* peers, bool looks) {
  // All ranks draw, also one that has no memory for what follows. A retried cycle begins anew, with
  // the same random numbers.
  const std::shared_ptr<Partial> loaded = runtime::dry_run() ? nullptr : std::move(loaded_);
  if (loaded) resumed_ = loaded->random;
  if (resumed_ && !runtime::dry_run()) {
    random_ = *resumed_;
  } else {
    runtime::about_to_draw(default_generator());
    random_ = default_generator().reserve(1);
  }
  for (Source& s : sources_) {
    for (auto& entry : s.stack.entries()) {
      if (!entry.value.in_arenas) free_.push_back(std::move(entry.value.gradients));
      if (entry.value.scalars.defined()) free_scalars_.push_back(entry.value.scalars);
    }
    if (!s.place.empty()) free_.push_back(std::move(s.place));
  }
  done_.clear();
  received_.assign(store.ledger().size(), 0);
  std::vector<ChunkRange> done;
  if (loaded) {
    received_ = std::move(loaded->received);
    done_ = std::move(loaded->nodes);
  }
  for (const Node& node : done_) done.push_back(node.range);

  const int ranks = peers ? peers->size() : 1, rank = peers ? peers->rank() : 0;
  std::vector<ChunkWork> works;
  LockStep out;
  for (int r = 0; r < ranks; ++r) {
    const auto [first, last] = share_of(chunks, r, ranks);
    works.push_back(work_of(first, last, done));
    out.most = std::max(out.most, works.back().to_compute);
  }
  rank_ = static_cast<std::size_t>(rank);
  out.mine = works[rank_].to_compute;
  const bool parts = peers && store.gradients_sharded();
  sources_ = std::vector<Source>(parts ? works.size() : 1);
  if (!parts) {
    mine().work = works[rank_];
    std::vector<bool> is_mine(done_.size(), false);
    for (const auto& item : mine().work.items)
      if (item.done >= 0) is_mine[static_cast<std::size_t>(item.done)] = true;
    for (std::size_t i = 0; i < done_.size(); ++i)
      if (!is_mine[i]) done_[i].gradients.clear();
  }
  // The gradient of the last chunk stays in the arenas.
  std::size_t most = parts ? 0 : std::max<std::size_t>(plan_chunks(works[rank_]).most, 1) - 1;
  std::size_t nodes = 0;
  for (std::size_t r = 0; r < works.size(); ++r) {
    const ChunkPlan plan = plan_chunks(works[r]);
    nodes += plan.nodes.size();
    if (!parts) continue;
    most += plan.most;
    sources_[r].work = works[r];
    sources_[r].stack.reserve(plan.most);
  }
  if (!parts) mine().stack.reserve(plan_chunks(works[rank_]).most);
  reserve(store, most);
  reserve_lists(nodes);
  if (peers && !parts) prepare(store, works, *peers);
  in_memory_ = !peers && !looks && done.empty();
  if (in_memory_) begin_in_memory(store, plan_chunks(works[rank_]).most);
  return out;
}

void ExactSums::begin_in_memory(const ParamStore& store, std::size_t parts) {
  const OwnerScope owner(Owner::gradients);
  const auto bytes = [&store](std::size_t n) {
    return empty({static_cast<std::int64_t>(n)}, DType::u8, store.device());
  };
  if (!before_.defined()) before_ = bytes(sizeof(math::LossSums));
  while (free_scalars_.size() < parts) free_scalars_.push_back(bytes(sizeof(CycleSums)));
  kernels::optim_note_sums(store.memory(), before_.mutable_view(), store.stream());
}

void ExactSums::draw_again() noexcept { random_ = default_generator().reserve(1); }

math::LossSums ExactSums::before() const {
  math::LossSums out;
  copy_bytes(&out, Device::cpu(), before_.impl()->data(), before_.device(), sizeof(out));
  return out;
}

std::vector<Tensor> ExactSums::memory() const {
  std::vector<Tensor> out = free_scalars_;
  out.push_back(before_);
  const auto add = [&out](const std::vector<Tensor>& more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  for (const auto& gradients : free_) add(gradients);
  for (const auto& entry : mine().stack.entries()) {
    add(entry.value.gradients);
    out.push_back(entry.value.scalars);
  }
  return out;
}

void ExactSums::reserve(const ParamStore& store, std::size_t parts) {
  while (free_.size() < parts) {
    free_.push_back(store.reserve_gradients());
    for (const Tensor& t : free_.back())  // gaps between parameters are zeros
      zero_bytes(t.impl()->data(), t.device(), t.bytes());
  }
}

void ExactSums::reserve_lists(std::size_t nodes) {
  free_.reserve(free_.size() + done_.size());
  tree_.clear();
  tree_.reserve(nodes);
}

void ExactSums::drop() noexcept {
  sources_.erase(sources_.begin() + 1, sources_.end());  // erase(), as a new list would allocate
  sources_.front() = Source();
  rank_ = 0;
  random_ = {};
  done_ = std::vector<Node>();
  free_ = std::vector<std::vector<Tensor>>();
  free_scalars_ = std::vector<Tensor>();
  before_ = Tensor();
  received_ = std::vector<std::uint8_t>();
  exchange_ = Exchange();
  tree_ = ChunkStack<Part>();
}

void ExactSums::prepare(const ParamStore& store, const std::vector<ChunkWork>& works,
                        const autograd::Peers& peers) {
  Exchange& e = exchange_;
  e.nodes.clear();
  e.most = 0;
  for (const ChunkWork& work : works) {
    e.nodes.push_back(plan_chunks(work).nodes);
    e.most = std::max(e.most, e.nodes.back().size());
  }
  const OwnerScope owner(Owner::gradients);
  const std::int64_t size = peers.size();
  const auto row = static_cast<std::int64_t>(e.most * sizeof(CycleSums));
  if (!e.all.defined() || e.mine.numel() != row || e.all.numel() != size * row) {
    e.all = Tensor();
    e.mine = zeros({row}, DType::u8, Device::cpu());
    e.all = zeros({size * row}, DType::u8, Device::cpu());
  }
  const std::vector<Tensor>& arenas = store.gradients();
  e.slices.resize(arenas.size());
  e.padded.resize(arenas.size());
  e.unpadded.resize(arenas.size());
  for (std::size_t a = 0; a < arenas.size(); ++a) {
    const std::int64_t n = arenas[a].numel(), padded = size * math::ceil_div(n, size);
    const DType dtype = arenas[a].dtype();
    if (padded != n && !(e.padded[a].defined() && e.padded[a].numel() == padded))
      e.padded[a] = zeros({padded}, dtype, store.device());
    if (padded != n) e.unpadded[a] = e.padded[a].as_strided({n}, {1}, 0);
    if (!e.slices[a].empty() && e.slices[a][0].numel() != padded) e.slices[a].clear();
    e.slices[a].resize(std::min(e.slices[a].size(), e.most));
    while (e.slices[a].size() < e.most)
      e.slices[a].push_back(empty({padded}, dtype, store.device()));
  }
  e.parts.clear();
  for (std::size_t r = 0; r < works.size(); ++r)
    for (std::size_t j = 0; j < e.nodes[r].size(); ++j) {
      std::vector<Tensor>& part = e.parts.emplace_back();
      for (const auto& slices : e.slices) {
        const std::int64_t length = slices[j].numel() / size;
        part.push_back(slices[j].as_strided({length}, {1}, static_cast<std::int64_t>(r) * length));
      }
    }
}

void ExactSums::add(Part& left, Part& right, bool stay, Stream stream) {
  const bool to_right = stay && right.in_arenas;
  const double factor = in_memory_ ? 1 : left.sums.add(right.sums);
  for (std::size_t a = 0; a < left.gradients.size(); ++a) {
    const Tensor &x = left.gradients[a], &y = right.gradients[a];
    if (in_memory_)
      kernels::optim_convert_gradient(left.scalars.view(), right.scalars.view(), y.mutable_view(),
                                      stream);
    else if (factor != 1)
      scale_gradient(y, factor, stream);
    if (to_right)
      add_gradient(x, 1, y, 1, stream);
    else
      add_gradient(y, 1, x, 1, stream);
  }
  if (in_memory_) {
    kernels::optim_add_sums(right.scalars.view(), left.scalars.mutable_view(), stream);
    free_scalars_.push_back(std::move(right.scalars));
  }
  if (to_right) {
    std::swap(left.gradients, right.gradients);
    std::swap(left.in_arenas, right.in_arenas);
  }
  if (!right.in_arenas) free_.push_back(std::move(right.gradients));
}

void ExactSums::advance(Source& s, Stream stream) {
  while (!s.is_done() && s.work.items[s.next].done >= 0) {
    const ChunkWork::Item& item = s.work.items[s.next++];
    Node& node = done_[static_cast<std::size_t>(item.done)];
    s.stack.push(item.range, Part{.sums = node.sums, .gradients = std::move(node.gradients)},
                 [&](Part& left, Part& right) { add(left, right, false, stream); });
  }
}

std::int64_t ExactSums::next(const ParamStore& store) {
  for (Source& s : sources_) advance(s, store.stream());
  return mine().is_done() ? -1 : mine().range().first;
}

std::span<const Tensor> ExactSums::place() {
  if (sharded()) return {};
  Source& s = mine();
  const auto& nodes = s.stack.entries();
  const bool joins = !nodes.empty() && are_halves(nodes.back().range, s.range());
  if (s.place.empty() && !joins && s.next + 1 != s.work.items.size()) {  // it will wait
    s.place = std::move(free_.back());
    free_.pop_back();
  }
  return s.place;
}

std::vector<Tensor> ExactSums::place_beside(const ParamStore& store) {
  reserve(store, 1);
  std::vector<Tensor> place = std::move(free_.back());
  free_.pop_back();
  return place;
}

void ExactSums::take(const ParamStore& store, const CycleSums& sums, std::vector<Tensor> beside) {
  if (!beside.empty()) mine().place = std::move(beside);
  const std::vector<std::uint8_t> noted = store.ledger().noted();
  for (std::size_t i = 0; i < received_.size(); ++i) received_[i] |= noted[i];
  if (sharded()) return;
  Source& s = mine();
  const bool in_arenas = s.place.empty(), last = s.next + 1 == s.work.items.size();
  Part part{.sums = sums,
            .gradients = in_arenas ? store.gradients() : std::move(s.place),
            .in_arenas = in_arenas};
  s.place.clear();
  if (in_memory_) {
    part.scalars = std::move(free_scalars_.back());
    free_scalars_.pop_back();
    kernels::optim_take_sums(store.memory(), before_.view(), part.scalars.mutable_view(),
                             store.stream());
  }
  s.stack.push(s.work.items[s.next++].range, std::move(part),
               [&](Part& left, Part& right) { add(left, right, last, store.stream()); });
}

CycleSums ExactSums::finish(const ParamStore& store, const autograd::Peers* peers) {
  next(store);  // finished nodes behind the last chunk
  if (sharded()) return fold_parts(store);
  if (peers) return exchange(store, *peers);
  const Part& root =
      mine().stack.fold([&](Part& left, Part& right) { add(left, right, true, store.stream()); });
  const std::vector<Tensor>& arenas = store.gradients();
  for (std::size_t a = 0; a < arenas.size() && !root.in_arenas; ++a)
    copy_gradient(root.gradients[a], arenas[a], store.stream());
  if (in_memory_)
    kernels::optim_put_sums(store.memory(), before_.view(), root.scalars.view(), store.stream());
  return root.sums;
}

CycleSums ExactSums::exchange(const ParamStore& store, const autograd::Peers& peers) {
  Exchange& e = exchange_;
  const auto& mine = this->mine().stack.entries();
  const auto ranks = static_cast<std::size_t>(peers.size());
  const std::vector<Tensor>& arenas = store.gradients();
  const Stream stream = store.stream();

  auto* const scalars = e.mine.mutable_view().as<std::uint8_t>();
  for (std::size_t j = 0; j < mine.size(); ++j)
    std::memcpy(scalars + j * sizeof(CycleSums), &mine[j].value.sums, sizeof(CycleSums));
  peers.all_gather(e.mine, e.all);
  for (std::size_t a = 0; a < arenas.size(); ++a)
    for (std::size_t j = 0; j < e.most; ++j) {
      // A rank with fewer nodes sends unused data.
      const Tensor& node = j < mine.size() ? mine[j].value.gradients[a] : arenas[a];
      if (e.padded[a].defined()) copy_gradient(node, e.unpadded[a], stream);
      peers.all_to_all(e.padded[a].defined() ? e.padded[a] : node, e.slices[a][j]);
    }

  // Each rank adds up its slice in the tree, then all ranks gather the slices.
  const auto add_up = [&](Part& left, Part& right) { add(left, right, false, stream); };
  auto slices = e.parts.begin();
  const std::uint8_t* const reported = e.all.view().as<std::uint8_t>();
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t j = 0; j < e.nodes[r].size(); ++j) {
      Part part;
      part.in_arenas = true;  // so that add() does not keep the memory
      std::memcpy(&part.sums, reported + (r * e.most + j) * sizeof(CycleSums), sizeof(CycleSums));
      part.gradients = std::move(*slices++);
      tree_.push(e.nodes[r][j], std::move(part), add_up);
    }
  const Part& root = tree_.fold(add_up);
  for (std::size_t a = 0; a < arenas.size(); ++a) {
    peers.all_gather(root.gradients[a], e.padded[a].defined() ? e.padded[a] : arenas[a]);
    if (e.padded[a].defined()) copy_gradient(e.unpadded[a], arenas[a], stream);
  }
  const CycleSums sums = root.sums;
  tree_.clear();
  return sums;
}

}  // namespace firn::optim
