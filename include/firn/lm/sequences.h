// Arguments that all language models take.
#pragma once

#include <cstdint>

#include "firn/nn/layers/attention.h"
#include "firn/ops/losses.h"
#include "firn/tensor.h"

namespace firn::lm {

/// Parameters of a new model.
struct ModelOptions {
  DType dtype = f32;
  Device device = default_device();
  bool draw = true;  ///< false leaves the weights uninitialised, for load()
};

/// The places of a batch's tokens, and the tokens that each of them sees. A token never sees a
/// later one, whatever these are.
///
/// Rows of different lengths that are padded at the end need nothing: leave the padding out of the
/// loss. Rows that are padded in front need both: positions that begin at 0 behind the padding, and
/// a mask [n, 1, 1, t] that is false there. Documents packed into one row have a mask [n, 1, t, t].
struct Sequences {
  Tensor positions = {};   ///< [t] or [n, t], i64 or i32; undefined: 0, 1, ...
  nn::SeenKeys seen = {};  ///< limits the tokens that are seen: see AttentionOptions
};

/// Arguments of a model's loss.
struct LossInput {
  Tensor ids;                        ///< [n, t]
  Tensor targets;                    ///< [n, t]: the token that follows each of them
  CrossEntropyOptions options = {};  ///< row_weights [n, t] are weights of the targets
  Sequences sequences = {};          ///< places of the tokens
};

/// Returns the targets of a text: the id that follows each of `ids` [n, t], and `last` behind the
/// last one, which is the ignore_index of cross_entropy().
Tensor next_ids(const Tensor& ids, std::int64_t last = -100);

}  // namespace firn::lm
