#include <utility>

#include "base/build.h"
#include "base/check.h"
#include "firn/random.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/thread_context.h"
#include "runtime/graph/captured_graph.h"
#include "runtime/graph/draw_tape.h"

namespace firn::runtime {
namespace {

using memory::CapturedGraph;

CapturedGraph* capture_on(Device device) noexcept {
  if constexpr (kHasCuda) {
    if (device.is_cuda()) return CapturedGraph::current(device);
  }
  return nullptr;
}

}  // namespace

bool capturing(Device device) noexcept { return capture_on(device) != nullptr; }

void refuse_capture(const char* op, Device device, const char* why) {
  FIRN_CHECK(!capturing(device), op, "do it before or after the work that is captured",
             "cannot be part of a captured graph on {}: {}", device, why);
}

void on_replay(Device device, std::function<void()> effect) {
  require_function("on_replay", effect, "give the effect that a replay repeats");
  if constexpr (kHasCuda) {
    if (CapturedGraph* captured = capture_on(device)) captured->add_effect(std::move(effect));
  }
}

void on_abandon(Device device, std::function<void()> rollback) {
  require_function("on_abandon", rollback, "give a function that takes the effect back");
  if constexpr (kHasCuda) {
    if (CapturedGraph* captured = capture_on(device)) captured->add_undo(std::move(rollback));
  }
}

namespace {

RandomKey fresh_random(Generator& generator, Device device, std::uint64_t numbers) {
  FIRN_CHECK(!thread_context.only_generator || thread_context.only_generator == &generator,
             "random numbers",
             "draw from the thread's stream: give no generator, and layers no seed",
             "{} numbers are drawn from a stream of their own, which in exact mode would give a "
             "sample other numbers if it is computed elsewhere",
             numbers);
  if constexpr (kHasCuda) {
    if (CapturedGraph* captured = capture_on(device)) return captured->reserve(generator, numbers);
  }
  // A plan draws nothing, and a generator of the caller's own stays where it is.
  if (planning()) return generator.get();
  about_to_draw(generator);
  return generator.reserve(numbers);
}

}  // namespace

void about_to_draw(Generator& generator) try {
  // The points themselves keep the stream of their thread, which has no end that they could see.
  if (!rollback_wanted() || static_cast<const void*>(&generator) == thread_context.random.own)
      [[likely]]
    return;
  const Ref<detail::GeneratorPlace> place = generator.place();
  place->ended = [](const detail::GeneratorPlace& p) noexcept {
    forget_change(Rollback::random, &p);
  };
  before_change(Rollback::random, place.get(), [&place]() -> std::function<void()> {
    return [place, key = place->generator->get()] {
      if (place->generator) place->generator->set(key);
    };
  });
}
FIRN_OUT_OF_MEMORY("RollbackPoint")

RandomKey reserve_random(Generator& generator, Device device, std::uint64_t numbers) {
  DrawTape* const tape = thread_context.draw_tape;
  if (!tape) [[likely]]
    return fresh_random(generator, device, numbers);
  if (tape->again) return tape->next(numbers);
  tape->draws.reserve(tape->draws.size() + 1);  // an error leaves the generator as it is
  const RandomKey key = fresh_random(generator, device, numbers);
  tape->draws.push_back({key, numbers});
  return key;
}

RandomKey DrawTape::next(std::uint64_t numbers) {
  FIRN_CHECK(position < draws.size() && draws[position].numbers == numbers, "checkpoint",
             "what is computed again must draw the same random numbers in the same order",
             "the function draws {} random numbers, {}", numbers,
             position < draws.size()
                 ? fmt::format("and drew {} there the first time", draws[position].numbers)
                 : "and drew fewer the first time");
  return draws[position++].key;
}

void note_kernel(const char* name) {
  if constexpr (kHasCuda) {
    if (CapturedGraph* captured = CapturedGraph::current()) [[unlikely]]
      captured->add_name(name);
  }
}

}  // namespace firn::runtime
