#include "lm/models/parts.h"

#include "base/check.h"
#include "firn/nn/init.h"

namespace firn::lm {

nn::Linear projection(std::int64_t in, std::int64_t out, bool bias, const ModelOptions& o) {
  nn::Linear layer(1, 1, {.bias = bias, .dtype = o.dtype, .device = o.device});
  layer.weight = nn::Parameter::empty({out, in}, o.dtype, o.device);
  if (bias) layer.bias = nn::Parameter::empty({out}, o.dtype, o.device);
  return layer;
}

nn::Embedding table(std::int64_t n, std::int64_t width, const ModelOptions& o) {
  nn::Embedding layer(1, 1, {.dtype = o.dtype, .device = o.device});
  layer.weight = nn::Parameter::empty({n, width}, o.dtype, o.device);
  return layer;
}

nn::Linear output_layer(const nn::Embedding& tokens, bool tied, const ModelOptions& options) {
  const Tensor& rows = tokens.weight;
  if (!tied) return projection(rows.size(1), rows.size(0), false, options);
  nn::Linear layer = projection(1, 1, false, options);
  layer.weight = tokens.weight;
  return layer;
}

void draw_weights(nn::Module& model, double deviation) {
  for (const nn::NamedTensor& p : model.named_parameters()) {
    if (p.tensor.rank() > 1)
      nn::init::normal_(p.tensor, 0, deviation);
    else if (p.name.ends_with("bias"))
      nn::init::zeros_(p.tensor);
  }
}

void check_ids(const char* op, const Tensor& ids) {
  FIRN_CHECK(ids.defined() && ids.rank() == 2, op, "one text: ids.unsqueeze(0)",
             "ids {} are not [n, t]", describe(ids));
}

Tensor next_ids(const Tensor& ids, std::int64_t last) try {
  check_ids("next_ids", ids);
  const Tensor end = full({ids.size(0), 1}, static_cast<double>(last), ids.dtype(), ids.device());
  return ids.size(1) == 0 ? ids : cat({ids.slice(1, 1, ids.size(1)), end}, 1);
}
FIRN_OUT_OF_MEMORY("next_ids")

}  // namespace firn::lm
