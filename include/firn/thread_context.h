// State of a thread that its operations see: open scopes, and work under way. It is for firn's own
// code; users open the scopes.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_set>

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/random.h"

namespace firn {

enum class Owner : std::uint8_t;  // firn/memory.h

namespace memory {
class CapturedGraph;
class DryRun;
class Model;
class ReservePool;
}  // namespace memory

namespace nn::detail {
class Call;
class CallListener;
}  // namespace nn::detail

namespace runtime {

struct DrawTape;

/// Names the memory report uses for the work of a thread (firn/memory/labels.h).
struct Labels {
  const char* op = nullptr;  ///< a string literal; null: none is known
  std::uint32_t module = 0;  ///< module_number() of the innermost module that is called
  /// The call of checkpoint() that is under way (firn/checkpoint.h), 0 for none. Later calls have
  /// larger numbers.
  std::uint64_t segment = 0;
};

}  // namespace runtime

namespace autograd {

class AttributeSink;
class BatchParts;
class BatchPartScope;
class CouplingScope;
class Cycle;
class Node;
class Trace;
struct ListenerList;
struct Reading;

/// The modes that every operation reads before it runs (src/autograd/op_mode.h).
struct OpMode {
  bool autocast = false;       ///< autocast is on
  DType autocast_dtype = f32;  ///< if autocast is on: f16, bf16 or f32
  bool anomaly = false;        ///< AnomalyMode
  /// Numbers of listeners begin at 0 with the outermost one. Those from `first` on are active.
  int listeners = 0, first = 0;

  /// True if AnomalyMode or a listener looks at the results of operations.
  bool watched() const noexcept { return anomaly || listeners > first; }

  class Plain;
};

}  // namespace autograd

/// Open scopes. A thread that does a part of another thread's work has the same (Coroutine).
struct ThreadScopes {
  Device device = Device::cpu();                       ///< DeviceScope
  int most_threads = std::numeric_limits<int>::max();  ///< NumThreadsScope
  bool recording = true;                               ///< NoGrad, EnableGrad
  autograd::OpMode op_mode;                            ///< Autocast, AnomalyMode, listeners
  runtime::Labels labels;                              ///< OpScope, ModuleScope, checkpoint()
  Owner owner{4};                  ///< OwnerScope; Owner::activations if there is none
  bool dry_run = false;            ///< kernels allocate, and do nothing else (firn/memory/plan.h)
  memory::DryRun* plan = nullptr;  ///< the plan that this thread makes
  memory::Model* cpu_model = nullptr;                 ///< the CPU's allocator in a plan
  memory::Model* cuda_model = nullptr;                ///< the device's allocator in a plan
  memory::ReservePool* reserve = nullptr;             ///< memory that was set aside
  nn::detail::CallListener* call_listener = nullptr;  ///< listener of module calls
  const nn::detail::Call* call = nullptr;             ///< the innermost call of a module
};

/// A thread's own random stream, and the one that the innermost GeneratorScope has set.
struct ThreadRandom {
  /// The thread's stream, once `begun`. It is never destroyed.
  alignas(Generator) unsigned char own[sizeof(Generator)] = {};
  Generator* chosen = nullptr;  ///< generator of the innermost GeneratorScope
  bool begun = false;           ///< `own` is a Generator with its seed
};

/// The state of one thread. It has no constructor and destructor, so it can be used before and
/// after main(). A pointer is null while there is nothing of its kind.
struct ThreadContext : ThreadScopes {
  ThreadRandom random;                             ///< streams of default_generator()
  runtime::DrawTape* draw_tape = nullptr;          ///< tape that reserve_random() uses
  const Generator* only_generator = nullptr;       ///< the only one that may be drawn from
  memory::CapturedGraph* capture = nullptr;        ///< the graph that is captured
  autograd::Cycle* cycle = nullptr;                ///< cycle whose backward passes run
  autograd::CouplingScope* coupling = nullptr;     ///< listener for coupled samples
  autograd::Trace* trace = nullptr;                ///< the innermost checkpoint() that is recorded
  autograd::BatchParts* batch_parts = nullptr;     ///< the parts of a batch, one of which runs here
  autograd::BatchPartScope* batch_part = nullptr;  ///< the part that this thread computes
  autograd::AttributeSink* attributes = nullptr;   ///< sink for attributes of operations
  autograd::Reading* reading = nullptr;         ///< scopes that read weights, if some are gathered
  autograd::ListenerList* listeners = nullptr;  ///< listeners of operations
  /// The nodes that take gradients while grad() runs.
  const std::unordered_set<const autograd::Node*>* gradient_path = nullptr;
};
/// Context of this thread. It is not an inline variable: each variant of the CPU kernels
/// (kernels/settings/isa.h) would have its own.
extern thread_local constinit ThreadContext thread_context;

}  // namespace firn
