// The timing mode of firn_interop, for bench/every_op: `firn_interop --time`. The program writes
// its table first. Then each message is one letter and what belongs to it:
//
//   L request                          loads a call: its operation, arguments and seeds (wire.h).
//   The
//                                      call runs once, with backward if a seed is defined.
//   T i32 threads, u8 backward, i64 n  runs the loaded call n times. With `backward` each call is
//                                      recorded and its gradients are computed; else nothing is.
//
// An answer is u8 1 and the f64 seconds that the calls took together, or u8 0 and a reason.
#pragma once

namespace firn::interop {

/// Answers messages from the standard input until it ends.
void answer_timings();

}  // namespace firn::interop
