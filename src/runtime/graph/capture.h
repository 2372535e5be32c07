// What the rest of firn has to know about the capture of a graph (firn/graph.h): that one is going
// on, and what the host does beside the work that is recorded.
#pragma once

#include <cstdint>
#include <functional>

#include "firn/device.h"
#include "firn/random.h"

namespace firn::memory {

/// Whether this thread is recording a graph on `device`. Work given to the device is then recorded
/// and not run.
bool capturing(Device device) noexcept;

/// For what cannot be in a graph: waiting for the device, reading from it, copying from pageable
/// memory of the host. Throws Error that names `op` and says why, while `device` is capturing.
void refuse_capture(const char* op, Device device, const char* why);

/// While capturing on `device`: `effect` belongs to the recorded work and is done on the host at
/// every replay, before the graph is launched, in the order of recording (the position in a cycle,
/// the version of a storage). It is not called now. Otherwise nothing happens.
void on_replay(Device device, std::function<void()> effect);

/// While capturing on `device`: `undo` is called where the recorded work was not run after all:
/// when the recording or its first launch fails, or a replay throws before it is launched; the
/// latest first, and only where the effects registered before it have been done. It must not throw.
/// Otherwise nothing happens.
void on_abandon(Device device, std::function<void()> undo);

/// The key of `numbers` random numbers from `generator` for a kernel on `device`: while capturing,
/// one whose base is written before every replay with where the generator then stands, and every
/// replay takes as many numbers from it.
/// The generator must outlive the graph.
RandomKey reserve_random(Generator& generator, Device device, std::uint64_t numbers);

/// While recording: the next node does `name`, a string literal. For the summary of a graph; called
/// for every kernel that is launched.
void note_kernel(const char* name);

}  // namespace firn::memory
