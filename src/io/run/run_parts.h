// Contents of a saved run: named tensors, and functions that restore values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "firn/io/resumable.h"
#include "firn/io/run.h"
#include "firn/random.h"
#include "optim/store/state_entry.h"

namespace firn::io {

/// One entry of the file.
struct RunSlot {
  std::string name;
  Tensor tensor;  ///< saved tensor; without `prepare`, load_run() writes into it
  /// Checks a value that was read, with the tensor's shape and dtype, and allocates the memory that
  /// it needs; may throw. The function that it returns restores the value and must not throw.
  std::function<std::function<void()>(const Tensor&)> prepare = {};
  std::function<void()> begin = {};  ///< see optim::StateEntry
  /// Kind of a text that describes an object: load_run() compares it and writes nothing.
  enum class Text : std::uint8_t { none, must_agree, may_differ_if_allowed };
  Text text = Text::none;
  /// True if there is nothing to save: the cycle has not collected this gradient.
  bool left_out = false;
  /// For a gradient: element `index` of the entry `needed_by` says whether the file has it.
  std::string needed_by = {};
  std::int64_t index = 0;
  bool any_rows = false;                          ///< see optim::StateEntry
  std::optional<MemoryFormat> codes_of = {};      ///< see optim::StateEntry
  bool in_batch = false;                          ///< true if an optimizer is saved within a batch
  std::optional<RandomKey> random_in_batch = {};  ///< position of the stream before `between`
  Tensor before_batch = {};        ///< saved in place of `tensor` if an optimizer is within a batch
  std::string not_saved = {};      ///< why it cannot be saved now; else empty
  bool of_module = false;          ///< true for a parameter or buffer
  bool is_stream = false;          ///< true for a random stream: seed and offset (streams.h)
  bool is_weight = false;          ///< true for an optimizer's weight; usually a module's too
  optim::TensorParts parts = {};   ///< shards, if it is sharded
  std::int64_t optional_part = 0;  ///< number of its optional_part(), from 1 on; 0: none
};

/// Selects the values of slots. all_ranks: the values that RunPart::Source::gather has brought to
/// rank 0.
enum class SlotsOf : std::uint8_t { this_rank, all_ranks };

struct RunPart::Source {
  const void* object = nullptr;  ///< object that the part refers to
  std::function<std::vector<RunSlot>(SlotsOf)> slots;
  // For an optimizer:
  std::function<autograd::StepRanks()> ranks = {};
  std::function<void()> gather = {};  ///< all ranks call it before slots(SlotsOf::all_ranks)
  std::function<void()> adopt = {};   ///< makes loaded gradients known; called after the writes
  bool optional = false;
  /// For a module: names a layer whose running statistics each rank has from its own samples, or
  /// returns "".
  std::function<std::string()> own_statistics = {};
};

struct RunAccess {
  static const RunPart::Source& source(const RunPart& part) { return *part.source_; }
  static void set_source(RunPart& part, std::shared_ptr<const RunPart::Source> source) {
    part.source_ = std::move(source);
  }
  // The private functions of a source of batches.
  static std::int64_t set_size(const Resumable& batches) { return batches.set_size(); }
  static BatchPosition before_batch(const Resumable& batches) { return batches.before_batch(); }
  static std::function<void()> prepare_seek(const Resumable& batches, BatchPosition position) {
    return batches.prepare_seek(position);
  }
};

/// Returns all slots of the parts and of default_generator(), each name once. Weights that a module
/// has are left out of the optimizers' slots. Throws Error if a name is used twice.
std::vector<RunSlot> slots_of(const char* op, std::span<const RunPart> parts, SlotsOf whose);

/// Returns the other ranks of the first optimizer that has some.
autograd::StepRanks ranks_of(std::span<const RunPart> parts);
/// Calls autograd::on_every_rank() with a function that only the first copy runs, on each of its
/// ranks for that rank's part of the model. Wrap a lambda in std::ref() here and in
/// load_on_every_rank(), because other ranks learn of no failure before the call.
void on_first_copy(const char* op, const autograd::StepRanks& ranks,
                   const std::function<void()>& function);
/// Calls autograd::on_every_rank() with a function that loads a run. If the group is broken, each
/// rank loads independently.
void load_on_every_rank(const char* op, const autograd::StepRanks& ranks,
                        const std::function<void()>& function);
/// Warns on the first rank if modules that several ranks have loaded keep statistics of each rank.
void warn_of_own_statistics(const char* op, std::span<const RunPart> parts,
                            const autograd::StepRanks& ranks);
/// Throws Error on every rank if two ranks with parts of one model would write to the same path.
void require_own_path(const char* op, const std::string& path, const autograd::StepRanks& ranks);

}  // namespace firn::io
