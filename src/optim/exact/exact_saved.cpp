// Batches of exact mode that are saved half-way: the sums of all ranks as entries of a file.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "kernels/copy.h"
#include "optim/exact/exact_step.h"
#include "optim/impl.h"
#include "optim/store/flat.h"

namespace firn::optim {
namespace {

/// Consecutive chunks make at most two nodes for each bit of their number.
constexpr std::size_t kMostNodes = 128;

struct NodeRecord {
  ChunkRange range;
  CycleSums sums;
};
struct NodeRecords {
  std::int64_t count = 0;
  NodeRecord nodes[kMostNodes] = {};
};
/// The beginning of the entry "batch". NodeRecords follow, then a byte for each parameter.
struct BatchHeader {
  std::int64_t samples = 0, chunk = 0, nodes = 0;
  RandomKey random = {};
};

Tensor bytes_of(const void* from, std::size_t bytes) {
  const Tensor out = empty({static_cast<std::int64_t>(bytes)}, DType::u8, Device::cpu());
  if (bytes > 0) std::memcpy(out.mutable_view().data, from, bytes);
  return out;
}

[[noreturn]] void fail_foreign(const std::string& op, const std::string& what) {
  detail::fail(op, "the file was not written by save_run()", "of a batch saved half-way, {}", what);
}

}  // namespace

ExactSums::Partial ExactSums::collect(const ParamStore& store, std::int64_t samples,
                                      const std::vector<std::uint8_t>& received,
                                      const autograd::Peers* peers, const Gather& gather) {
  const bool parts = peers && store.gradients_sharded();
  if (loaded_) {
    Partial whole = *loaded_;
    for (Node& node : whole.nodes)
      if (parts) node.gradients = gather(node.gradients);
    return whole;
  }
  next(store);
  Partial out{.samples = samples, .random = random_, .nodes = {}, .received = received};
  if (parts) {
    for (const Source& source : sources_)
      for (const auto& entry : source.stack.entries()) {
        std::vector<Tensor> whole = gather(entry.value.gradients);
        if (!whole.empty()) out.nodes.push_back({entry.range, entry.value.sums, std::move(whole)});
      }
    return out;
  }
  const auto& mine = this->mine().stack.entries();
  FIRN_CHECK(mine.size() <= kMostNodes, store.op(), "", "{} sums stand at a time", mine.size());
  if (!peers) {
    for (const auto& entry : mine)
      out.nodes.push_back({entry.range, entry.value.sums, entry.value.gradients});
    return out;
  }
  return collect_nodes(store, std::move(out), *peers);
}

ExactSums::Partial ExactSums::collect_nodes(const ParamStore& store, Partial out,
                                            const autograd::Peers& peers) const {
  const auto& mine = this->mine().stack.entries();
  const auto ranks = static_cast<std::size_t>(peers.size());
  const auto together = [&](const auto& fn) {
    autograd::on_every_rank(store.op().c_str(), &peers, fn);
  };
  std::vector<NodeRecords> records;
  Tensor of_rank, of_all;
  together([&] {
    records.resize(ranks);
    NodeRecords& own = records.front();
    own.count = static_cast<std::int64_t>(mine.size());
    for (std::size_t j = 0; j < mine.size(); ++j)
      own.nodes[j] = {mine[j].range, mine[j].value.sums};
    of_rank = bytes_of(&own, sizeof(own));
    of_all = empty({peers.size() * of_rank.numel()}, DType::u8, Device::cpu());
  });
  peers.all_gather(of_rank, of_all);
  std::memcpy(records.data(), of_all.view().as<std::uint8_t>(), ranks * sizeof(NodeRecords));
  std::vector<std::vector<std::vector<Tensor>>> places(ranks);  // tensors for each node
  together([&] {
    std::vector<Tensor> unused;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t j = 0; j < static_cast<std::size_t>(records[r].count); ++j) {
        const bool own = static_cast<std::size_t>(peers.rank()) == r;
        if (!own && peers.rank() != 0 && unused.empty()) unused = store.reserve_gradients();
        places[r].push_back(own                 ? mine[j].value.gradients
                            : peers.rank() == 0 ? store.reserve_gradients()
                                                : unused);
      }
  });
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t j = 0; j < places[r].size(); ++j) {
      if (r > 0)
        for (const Tensor& t : places[r][j]) peers.broadcast(t, static_cast<int>(r));
      if (peers.rank() == 0)
        out.nodes.push_back(
            {records[r].nodes[j].range, records[r].nodes[j].sums, std::move(places[r][j])});
    }
  return out;
}

// ---- The step's side ----

std::string ExactStep::why_not_saved() const {
  if (step.call.batch > 0 && !between_)
    return "a run_batch() is under way; it can be saved in MicroBatch::between";
  return StepExtension::why_not_saved();
}

StepExtension::InBatch ExactStep::in_batch() const noexcept {
  return {.yes = between_.has_value() || sums_.loaded(), .random = between_};
}

std::vector<StateEntry> ExactStep::entries_in_file() {
  std::vector<StateEntry> out = StepExtension::entries_in_file();
  ParamStore& store = step.store;
  struct Read {
    ExactSums::Partial partial;
    std::size_t parameters = 0;
  };
  const auto read = std::make_shared<Read>();
  const std::size_t n = store.parameters().size();
  const std::vector<Tensor> no_rows = store.reserve_rows(0);
  for (std::size_t i = 0; i < n; ++i) {
    StateEntry& e = out.emplace_back();
    e.name = fmt::format("parameters.{}.sums", i);
    e.tensor = store.rows_in(no_rows, i);
    e.any_rows = true;
    e.prepare = [this, read, i](const Tensor& rows) -> std::function<void()> {
      if (!rows.defined()) return [] {};
      auto& nodes = read->partial.nodes;
      const auto count = static_cast<std::size_t>(rows.size(0));
      if (read->parameters++ == 0) {
        nodes.resize(count);
        for (auto& node : nodes) {
          node.gradients = step.store.reserve_gradients();
          for (const Tensor& t : node.gradients)
            zero_bytes(t.impl()->data(), t.device(), t.bytes());
        }
      }
      if (nodes.size() != count)
        fail_foreign(step.store.op(), "parameters have other numbers of sums");
      for (std::size_t j = 0; j < count; ++j)
        step.store.store_gradient(rows[static_cast<std::int64_t>(j)], nodes[j].gradients, i);
      return [] {};
    };
  }
  StateEntry& of_batch = out.emplace_back();
  of_batch.name = "batch";
  of_batch.tensor = empty({0}, DType::u8, Device::cpu());
  of_batch.any_rows = true;
  of_batch.prepare = [this, read, n](const Tensor& bytes) -> std::function<void()> {
    step.require_outside_cycle("load_run()");
    if (!bytes.defined()) {
      if (read->parameters > 0) fail_foreign(step.store.op(), "there are sums alone");
      return [this] { sums_.forget(); };
    }
    ExactSums::Partial& partial = read->partial;
    BatchHeader header;
    const auto size = static_cast<std::size_t>(bytes.numel());
    const auto* from = bytes.view().as<std::uint8_t>();
    if (size < sizeof(header)) fail_foreign(step.store.op(), "the header is cut off");
    std::memcpy(&header, from, sizeof(header));
    FIRN_CHECK(header.chunk == step.options.exact.chunk, step.store.op(),
               "load it with the chunk that it was saved with",
               "the run was saved within a batch in chunks of {} samples, and the optimizer has "
               "chunks of {}",
               header.chunk, step.options.exact.chunk);
    if (header.samples < 1 || read->parameters != n ||
        header.nodes != static_cast<std::int64_t>(partial.nodes.size()) ||
        size != sizeof(header) + partial.nodes.size() * sizeof(NodeRecord) + n)
      fail_foreign(step.store.op(), "the numbers do not fit");
    from += sizeof(header);
    const std::int64_t chunks = 1 + (header.samples - 1) / step.options.exact.chunk;
    std::int64_t end = 0;
    for (auto& node : partial.nodes) {
      NodeRecord record;
      std::memcpy(&record, from, sizeof(record));
      from += sizeof(record);
      const ChunkRange& range = record.range;
      if (range.first < end || range.count < 1 || range.count > chunks - range.first ||
          (range.count & (range.count - 1)) != 0 || range.first % range.count != 0)
        fail_foreign(step.store.op(), "a sum is of no node");
      end = range.first + range.count;
      node.range = range;
      node.sums = record.sums;
    }
    partial.samples = header.samples;
    partial.random = header.random;
    partial.received.assign(from, from + n);
    auto taken = std::make_shared<ExactSums::Partial>(std::move(partial));
    return [this, taken]() mutable {
      sums_.forget();
      sums_.resume(std::move(taken));
    };
  };
  return out;
}

void ExactStep::add_cycle_of_all(std::vector<StateEntry>& state) {
  if (!in_batch().yes) return StepExtension::add_cycle_of_all(state);
  const std::string& op = step.store.op();
  const autograd::Peers* const peers = copies();
  std::vector<std::uint8_t> received;
  autograd::on_every_rank(op.c_str(), peers, [&] {
    received = sums_.loaded() ? sums_.loaded()->received : sums_.received();
  });
  if (!runtime::dry_run()) announce(Event::save, received);
  const auto gather = [this](const std::vector<Tensor>& shards) {
    const OwnerScope owner(Owner::gradients);
    return gather_arenas(shards, false);
  };
  const ExactSums::Partial partial =
      sums_.collect(step.store, step.call.batch, received, peers, gather);
  autograd::on_every_rank(op.c_str(), peers, [&] { add_batch(state, partial); });
}

void ExactStep::add_batch(std::vector<StateEntry>& state, const ExactSums::Partial& partial) const {
  const ParamStore& store = step.store;
  // The rest of the state is the one before the batch.
  const Tensor step_state = store.step_state().clone(), progress = step.progress_memory.clone();
  const math::LossSums sums = step.at.micro_steps > 0 ? step.now.sums_before : step.loss_sums();
  write_bytes(step_state, &sums, sizeof(sums));
  reinterpret_cast<Progress*>(progress.mutable_view().as<std::int64_t>())->close();
  for (StateEntry& e : state) {
    if (e.name == "step_state") e.tensor = step_state;
    if (e.name == "cycle") e.tensor = progress;
    if (e.name == "touched") e.tensor = zeros(e.tensor.shape(), DType::u8, Device::cpu());
  }
  if (copies() && copies()->rank() != 0) return;  // rank 0 writes
  const auto nodes = static_cast<std::int64_t>(partial.nodes.size());
  const std::vector<Tensor> rows = store.reserve_rows(nodes);
  const BatchHeader header{partial.samples, step.options.exact.chunk, nodes, partial.random};
  std::vector<std::uint8_t> bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (std::int64_t j = 0; j < nodes; ++j) {
    const ExactSums::Node& node = partial.nodes[static_cast<std::size_t>(j)];
    for (std::size_t a = 0; a < rows.size(); ++a)
      kernels::copy(node.gradients[a].view(), rows[a][j].mutable_view(), store.stream());
    const NodeRecord record{node.range, node.sums};
    const auto* const from = reinterpret_cast<const std::uint8_t*>(&record);
    bytes.insert(bytes.end(), from, from + sizeof(record));
  }
  bytes.insert(bytes.end(), partial.received.begin(), partial.received.end());
  for (std::size_t i = 0; i < store.parameters().size(); ++i)
    state.push_back({fmt::format("parameters.{}.sums", i), store.rows_in(rows, i)});
  state.push_back({"batch", bytes_of(bytes.data(), bytes.size())});
}

}  // namespace firn::optim
