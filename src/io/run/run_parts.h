// What a saved run consists of, as named tensors and functions that put values back.
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
  Tensor tensor;  ///< what is saved; load_run() writes into it unless there is a `prepare`
  /// Checks a value that was read, of the tensor's shape and dtype, and takes the memory that it
  /// needs; may throw. The result puts the value in place and must not throw.
  std::function<std::function<void()>(const Tensor&)> prepare = {};
  /// For a text that describes an object: load_run() compares it and writes nothing.
  enum class Text : std::uint8_t { none, must_agree, may_differ_if_allowed };
  Text text = Text::none;
  /// Whether this run has nothing there to save: a gradient that the cycle has not collected.
  bool left_out = false;
  /// For a gradient: element `index` of the entry `needed_by` says whether the file has it.
  std::string needed_by = {};
  std::int64_t index = 0;
  bool any_rows = false;                          ///< see optim::StateEntry
  bool in_batch = false;                          ///< of an optimizer: it is saved within a batch
  std::optional<RandomKey> random_in_batch = {};  ///< where the stream was before `between`
  Tensor before_batch = {};        ///< saved in place of `tensor` if an optimizer is within a batch
  std::string not_saved = {};      ///< why it cannot be saved at the moment; else empty
  bool of_module = false;          ///< a parameter or buffer
  bool is_stream = false;          ///< of random numbers: seed and offset (streams.h)
  bool is_weight = false;          ///< of an optimizer: also a module's, as a rule
  optim::TensorParts parts = {};   ///< if ranks divide it
  std::int64_t optional_part = 0;  ///< the number, from 1 on, of the optional_part() it is of
};

/// Whose values slots have. Of all ranks: what RunPart::Source::gather has brought to rank 0.
enum class SlotsOf : std::uint8_t { this_rank, all_ranks };

struct RunPart::Source {
  const void* object = nullptr;  ///< what the part refers to
  std::function<std::vector<RunSlot>(SlotsOf)> slots;
  // For an optimizer:
  std::function<autograd::StepRanks()> ranks = {};
  std::function<void()> gather = {};  ///< a call of all ranks, before slots(SlotsOf::all_ranks)
  bool optional = false;
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

/// All slots of the parts and of default_generator(), each name once. Weights that a module has are
/// left out of the optimizers' slots. Throws Error if a name is used twice.
std::vector<RunSlot> slots_of(const char* op, std::span<const RunPart> parts, SlotsOf whose);

/// The other ranks of the first optimizer that has some.
autograd::StepRanks ranks_of(std::span<const RunPart> parts);
/// autograd::on_every_rank() of what the first copy does alone, each rank of it for its part of the
/// model.
void on_first_copy(const char* op, const autograd::StepRanks& ranks,
                   const std::function<void()>& function);
/// autograd::on_every_rank() of what loads a run: of ranks that have lost each other, each loads by
/// itself.
void load_on_every_rank(const char* op, const autograd::StepRanks& ranks,
                        const std::function<void()>& function);
/// Throws Error on every rank if two ranks with parts of one model would write to the same path.
void require_own_path(const char* op, const std::string& path, const autograd::StepRanks& ranks);

}  // namespace firn::io
