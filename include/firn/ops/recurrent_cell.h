// The cells of recurrent networks, for recurrent() and its kernels.
#pragma once

#include <cstdint>

namespace firn {

/// Formula of a step. x is the product of the step's input, r that of the state before.
enum class RecurrentCell : std::uint8_t {
  rnn_tanh,  ///< h = tanh(x + r)
  rnn_relu,  ///< h = max(x + r, 0)
  gru,       ///< gates r, z, n; h = (1 - z) n + z h', n = tanh(x_n + r r_n) (Cho et al. 2014)
  lstm,      ///< gates i, f, g, o; c = f c' + i g, h = o tanh(c) (Hochreiter & Schmidhuber 1997)
};
/// Returns the number of gates: 1, 1, 3 and 4; 0 for a number that is not a cell.
std::int64_t gates_of(RecurrentCell cell) noexcept;

}  // namespace firn
