// Attention, rotary positions, gated units and their layers, and the loss over a vocabulary. Those
// named composed.* have their samples in compositions.py.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

std::optional<std::int64_t> integer_if(A a, const char* name) {
  return a.has(name) ? std::optional(a.integer(name)) : std::nullopt;
}
std::optional<double> number_if(A a, const char* name) {
  return a.has(name) ? std::optional(a.number(name)) : std::nullopt;
}

// ---- Attention ----
/// PyTorch's operation: a mask without heads, one axis of both batch and heads, or q without batch.
Results dot_product_attention(A a) {
  if (a.number("dropout_p", 0) != 0) throw Refused("argument 'dropout_p' makes the result random");
  Tensor q = x(a), k = a.tensor("key"), v = a.tensor("value"), mask = a.tensor_or_none("attn_mask");
  const int rank = q.rank();
  if (rank == 3 && k.rank() == 4) {
    q = expand(unsqueeze(q, 0), {k.size(0), q.size(0), q.size(1), q.size(2)});
  } else if (rank == 3) {
    q = unsqueeze(q, 1), k = unsqueeze(k, 1), v = unsqueeze(v, 1);
    if (mask.defined() && mask.rank() == 3) mask = unsqueeze(mask, 1);
  }
  AttentionOptions options{.scale = number_if(a, "scale")};
  (mask.defined() && mask.dtype() != boolean ? options.bias : options.mask) = mask;
  const std::int64_t n = q.size(2), m = k.size(2);
  if (a.flag("is_causal", false)) {  // PyTorch's first query stands at the first key
    if (n == m) {
      options.causal = true;
    } else {
      options.mask = le(unsqueeze(arange(m), 0), unsqueeze(arange(n), 1));
    }
  }
  const Tensor y = attention(q, k, v, options);
  return {rank == 3 && y.size(1) == 1 ? squeeze(y, 1) : y};
}

Results attended(A a) {
  return {attention(x(a), a.tensor("k"), a.tensor("v"),
                    {.causal = a.flag("causal", false),
                     .window = integer_if(a, "window"),
                     .lengths = a.tensor_or_none("lengths"),
                     .mask = a.tensor_or_none("mask"),
                     .bias = a.tensor_or_none("bias"),
                     .scale = number_if(a, "scale")})};
}

Results turned(A a) {
  return {rope(x(a), {.positions = a.tensor_or_none("positions"),
                      .offset = a.integer("offset", 0),
                      .theta = a.number("theta", 10000),
                      .interleaved = a.flag("interleaved", false)})};
}

// ---- Layers ----
/// The caller's tensors as parameters, so that they get the gradients.
void put(nn::Linear& layer, const Tensor& weight, const Tensor& bias) {
  static_cast<Tensor&>(layer.weight) = weight;
  static_cast<Tensor&>(layer.bias) = bias;
}

nn::SeenKeys seen_keys(A a) {
  return {.lengths = a.tensor_or_none("lengths"), .mask = a.tensor_or_none("mask")};
}

Results self_attended(A a) {
  const Tensor &weight = a.tensor("weight"), &out = a.tensor("out_weight");
  const std::int64_t heads = a.integer("heads", 1), key_heads = a.integer("key_heads", heads);
  nn::MultiHeadAttention layer(x(a).size(2), heads,
                               {.key_heads = key_heads,
                                .head_width = out.size(1) / heads,
                                .causal = a.flag("causal", false),
                                .window = integer_if(a, "window"),
                                .rope_theta = number_if(a, "theta"),
                                .rope_interleaved = a.flag("interleaved", false),
                                .dtype = x(a).dtype()});
  put(*layer.qkv, weight, a.tensor_or_none("bias"));
  put(layer.out, out, a.tensor_or_none("out_bias"));
  return {layer(x(a), seen_keys(a))};
}

Results attended_memory(A a) {
  const Tensor& memory = a.tensor("memory");
  nn::MultiHeadAttention layer(x(a).size(2), a.integer("heads", 1),
                               {.memory_width = memory.size(2), .dtype = x(a).dtype()});
  put(*layer.q, a.tensor("q_weight"), a.tensor_or_none("q_bias"));
  put(*layer.kv, a.tensor("kv_weight"), a.tensor_or_none("kv_bias"));
  put(layer.out, a.tensor("out_weight"), a.tensor_or_none("out_bias"));
  return {layer(x(a), memory, seen_keys(a))};
}

Results gated(A a) {
  const Tensor& gate = a.tensor("gate");
  nn::SwiGLU layer(gate.size(1), gate.size(0), {.dtype = x(a).dtype()});
  put(layer.gate, gate, a.tensor_or_none("gate_bias"));
  put(layer.up, a.tensor("up"), a.tensor_or_none("up_bias"));
  put(layer.down, a.tensor("down"), a.tensor_or_none("down_bias"));
  return {layer(x(a))};
}

// ---- Loss ----
Results of_vocabulary(A a) {
  const Loss loss = linear_cross_entropy(x(a), a.tensor("weight"), a.tensor("target"),
                                         {.ignore_index = a.integer("ignore_index", -100),
                                          .label_smoothing = a.number("label_smoothing", 0),
                                          .class_weights = a.tensor_or_none("class_weights"),
                                          .row_weights = a.tensor_or_none("row_weights"),
                                          .z_loss = a.number("z_loss", 0)},
                                         {.bias = a.tensor_or_none("bias"),
                                          .chunk_rows = a.integer("chunk_rows", 0),
                                          .chunk_classes = a.integer("chunk_classes", 0)});
  return {a.text("reduction", "mean") == "sum" ? loss.sum : loss.mean()};
}

}  // namespace

std::vector<Entry> transformer_entries() {
  return {
      {"nn.functional.scaled_dot_product_attention",
       "input key value attn_mask dropout_p is_causal scale enable_gqa?", Sums::yes,
       dot_product_attention},
      {"composed.attention", "input k v bias causal window lengths mask scale", Sums::yes,
       attended},
      {"composed.rope", "input positions offset theta interleaved", Sums::yes, turned},
      {"composed.swiglu", "input up", Sums::no,
       [](A a) -> Results { return {swiglu(x(a), a.tensor("up"))}; }},
      {"composed.SwiGLU", "input gate up down gate_bias up_bias down_bias", Sums::yes, gated},
      {"composed.linear_cross_entropy",
       "input weight target bias class_weights ignore_index label_smoothing row_weights z_loss "
       "reduction chunk_rows chunk_classes",
       Sums::yes, of_vocabulary},
      {"nn.MultiheadAttention", "input weight out_weight bias out_bias heads causal lengths mask",
       Sums::yes, self_attended},
      {"nn.MultiheadAttention/memory",
       "input memory q_weight kv_weight out_weight q_bias kv_bias out_bias heads lengths mask",
       Sums::yes, attended_memory},
      {"composed.MultiHeadAttention",
       "input weight out_weight bias out_bias heads key_heads causal window theta interleaved "
       "lengths",
       Sums::yes, self_attended},
  };
}

}  // namespace firn::interop
