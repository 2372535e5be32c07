// Every allocation of a piece of work fails once, each in a process and a thread of its own. The
// thread is new and firn's caches are empty, so that whatever the work needs is allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace firn::testing {

/// A piece of work that needs memory.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;
  /// The bytes that run() leaves alone when it throws.
  virtual std::string kept() = 0;
  /// What the documentation asks of users before they try again.
  virtual void prepare_again() {}
  /// The bytes that run() has made.
  virtual std::string made() = 0;
};
using MakeWork = std::function<std::unique_ptr<Work>()>;

enum class Fails : std::uint8_t {
  heap,           ///< one allocation on the heap
  heap_for_good,  ///< it and all after it, until the exception has left run()
  warm_heap,      ///< one on the heap in a second run, also of those that a Reserve covers
  blocks,         ///< one of tensors' memory
};

/// Fails allocation 0, stride, 2 stride, ... until one is past the last. After 40 it takes every
/// third of them, unless FIRN_SWEEP_ALL is in the environment. Requires of each: an Error of firn's
/// comes out, kept() is as it was, and a second try makes what a run that nothing fails in makes.
/// Returns how many of them failed; one that was tried stands for those left out after it. For a
/// debugger: with FIRN_SWEEP_AT=k in the environment allocation k alone fails, in this process.
int sweep(const MakeWork& make, Fails what, int stride = 1);

/// How one try of a sweep ended. The numbers are exit codes of its process.
enum class Tried : std::uint8_t {
  done = 40,    ///< nothing failed
  threw = 41,   ///< an allocation failed, and all went as it should
  hidden = 42,  ///< an allocation failed, and the work went on without it
  wrong = 43,   ///< `said` has the reason
};
/// Runs attempt(k, said), each in a process of its own, for the same k as sweep() until one is
/// done. Requires that none is wrong, and returns how many threw.
using Attempt = std::function<Tried(std::int64_t k, std::string& said)>;
int sweep_attempts(const Attempt& attempt, std::int64_t stride = 1);

/// sweep() for single allocations on the heap in a process that has run nothing before, if the test
/// has a process of its own.
int sweep_first_use(const MakeWork& make);

/// The same for a heap that is limited to ever more bytes, from 0 in steps of `step`. Nothing is
/// exempt here: what oneDNN allocates to make its code counts as well.
int sweep_limits(const MakeWork& make, std::int64_t step);

}  // namespace firn::testing
