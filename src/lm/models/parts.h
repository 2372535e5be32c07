// Parts that the models share.
#pragma once

#include <cstdint>
#include <string>

#include "firn/lm/sequences.h"
#include "firn/nn/layers/embedding.h"
#include "firn/nn/layers/linear.h"
#include "firn/ops/ops.h"
#include "firn/ops/rearrange.h"

namespace firn::lm {

/// Return layers whose weights are not drawn yet.
nn::Linear projection(std::int64_t in, std::int64_t out, bool bias, const ModelOptions& options);
nn::Embedding table(std::int64_t n, std::int64_t width, const ModelOptions& options);

/// Returns the output layer: one whose weight is that of the table, or one of its own.
nn::Linear output_layer(const nn::Embedding& tokens, bool tied, const ModelOptions& options);

/// Sets matrices to normal numbers with this standard deviation, and biases to 0. Norms keep their
/// values.
void draw_weights(nn::Module& model, double deviation);

/// Throws Error unless ids are [n, t].
void check_ids(const char* op, const Tensor& ids);

/// [n, t, heads * width] as [n, heads, t, width]; a view.
inline Tensor heads_of(const Tensor& x, std::int64_t width) {
  return transpose(unflatten(x, -1, {-1, width}), 1, 2);
}
/// [n, heads, t, width] as [n, t, heads * width].
inline Tensor joined_heads(const Tensor& x) { return flatten(transpose(x, 1, 2), 2); }

}  // namespace firn::lm
