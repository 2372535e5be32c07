// RollbackPoint: undoes what work has changed, so that work can fail, or be done twice.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

namespace firn {

/// Kinds of things that a RollbackPoint puts back.
enum class Rollback : std::uint8_t {
  random,      ///< positions of random streams
  statistics,  ///< state that a forward pass changes, such as running statistics, and metrics
  data,        ///< positions in data sets
  gradients,   ///< an optimizer's cycle: collected gradients, weights of losses, its place
};

/// Remembers the present state. Changes that this thread makes from then on can be undone:
///
///   RollbackPoint start;
///   try {
///     work();
///   } catch (const OutOfMemory&) {
///     start.roll_back();  // as if work() had not begun
///   }
///
/// It covers this thread's default_generator(), every other Generator that operations draw from,
/// running statistics, metrics, positions of loaders, and collected values of optimizers' cycles,
/// set_grad() of their parameters included. A backward() that failed half-way is undone too.
///
/// It does not cover:
///   - what a step has changed: weights, the optimizer's state, and statistics that move once per
///     step. If a cycle has ended since the point was made, its gradients are gone; those of the
///     cycle after it are dropped, and the weights stay as they are;
///   - settings: learning rate, loss scale, epoch, and a state that was copied into an optimizer;
///   - tensors that the work writes itself, also gradients that it writes through grad() or
///     Optimizer::state(), and gradients of leaves that no optimizer trains;
///   - Generator::set() and reserve() of other generators than the default one: they go back to
///     where an operation first drew from them (runtime::about_to_draw() announces a reserve());
///   - what a loader has counted (stats()), and fields that were moved out of the batch in hand. A
///     loop that the work began is undone: its iterators are at their end.
///
/// If the work loads a run (io::load_run(), io::Checkpoints::resume()), the points of its thread
/// begin anew: roll_back() then goes back to the run as it was loaded, and undoes nothing that came
/// before. io::load_safetensors() into a module and Module::copy_from() do the same for the tensors
/// that they write, and all else goes back to the point.
///
/// A thing is copied at its first change, so a point costs nothing for things that stay as they
/// are. A point at the beginning of a cycle copies no gradients. A replay of a graph is covered; a
/// capture that needs a copy throws Error, since the copy would become a part of the graph.
///
/// While an optimizer computes a cycle or a step, the function that it calls may roll back points
/// that it has made itself. The gradients of older points would take samples out of that cycle, so
/// roll_back() throws Error for them.
///
/// A point belongs to its thread, and to the plan of memory that it was made in, if any: elsewhere
/// roll_back() throws Error. Points of a thread nest as scopes, and are destroyed in the reverse
/// order of their making. An outer point also undoes changes that are made while inner points live.
/// The generator that was default_generator() when the point was made, such as the one of a
/// GeneratorScope around it, must live as long as the point. Anything else may be moved, and
/// destroyed before. A Generator that was copied or assigned to is another one from then on.
class RollbackPoint {
 public:
  /// Covers all kinds. Throws OutOfMemory.
  [[nodiscard]] RollbackPoint();
  /// Covers these kinds. Throws Error for a value that is not a Rollback.
  [[nodiscard]] explicit RollbackPoint(std::initializer_list<Rollback> kinds);
  ~RollbackPoint();
  RollbackPoint(const RollbackPoint&) = delete;
  RollbackPoint& operator=(const RollbackPoint&) = delete;

  /// Puts everything back, the latest change first. From then on, this point and points made after
  /// it record changes from the restored state. If something cannot be put back, because a device
  /// refuses the work, all else is, and the first such error is thrown; a second call tries the
  /// rest again.
  void roll_back();
  /// Puts back one kind alone. From then on, the points record changes of that kind anew.
  void roll_back(Rollback kind);

 private:
  friend class RollbackSeam;
  struct Impl;
  void roll_back_kinds(std::uint8_t kinds);
  std::shared_ptr<Impl> impl_;  ///< outlives this object until its thread unlinks it
};

namespace runtime {

/// Returns true if this thread has a RollbackPoint: a load of a thread-local variable. False while
/// a point rolls back.
bool rollback_wanted() noexcept;

/// Puts a thing back as it was. `may` becomes `check`; if it is empty, there is no check.
struct PutBack {
  PutBack(std::function<void()> put, std::function<void()> may = {})  // NOLINT: implicit
      : put_back(std::move(put)), check(std::move(may)) {}
  std::function<void()> put_back;  ///< may be called several times
  std::function<void()> check;     ///< throws if the thing cannot be put back now
};

/// Call it before a change that a RollbackPoint must be able to undo. `what` is an address that
/// identifies the object among those of its kind. If a point does not know `what` yet, save() is
/// called, once for all such points. It returns a function that puts the object back as it is now,
/// which may be called several times. That function keeps the object alive, so that no other object
/// gets its address. Throws what save() throws; then change nothing. Without a point nothing
/// happens. roll_back() calls `check`, if there is one, before it puts anything back: it throws if
/// that is impossible.
void before_change(Rollback kind, const void* what, const std::function<PutBack()>& save);

/// Makes this thread's points forget what they keep of `what`: from then on, a change of it is its
/// first. Call it when the object ends, or when it was given a value that is to stay.
void forget_change(Rollback kind, const void* what) noexcept;

/// Makes this thread's points begin anew: they forget all that they keep, and go back to the
/// present state.
void begin_points_anew() noexcept;

}  // namespace runtime
}  // namespace firn
