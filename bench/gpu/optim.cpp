// One step of AdamW: norm and finite check, the update of FP32 masters with their 16-bit copies,
// and the decision to make it. It has 124 million parameters in one tensor or in GPT-2's 148, or
// the MLP's six. Only the step is timed, between marks: the host runs ahead while the device is
// busy.
#include "bench.h"

namespace bench {
namespace {

using namespace firn;

/// Returns the shapes of GPT-2's parameters (124M, with the head tied to the token table).
std::vector<Shape> gpt2(std::int64_t vocabulary, std::int64_t context, std::int64_t width,
                        int layers) {
  std::vector<Shape> shapes{{vocabulary, width}, {context, width}};
  for (int i = 0; i < layers; ++i) {
    const std::vector<Shape> block{
        {width}, {width}, {3 * width, width}, {3 * width}, {width, width},     {width},
        {width}, {width}, {4 * width, width}, {4 * width}, {width, 4 * width}, {width}};
    shapes.insert(shapes.end(), block.begin(), block.end());
  }
  shapes.push_back({width});
  shapes.push_back({width});
  return shapes;
}

struct Set {
  const char* name;
  std::vector<Shape> shapes;
};

/// Returns a sum whose gradient exists for every parameter at almost no cost: it has their first
/// elements.
Tensor touch_all(const std::vector<Tensor>& parameters) {
  Tensor total;
  for (const Tensor& p : parameters) {
    const Tensor first = sum(slice(p, 0, 0, 1)).to(f32);
    total = total.defined() ? total + first : first;
  }
  return total;
}

void adamw(const Set& set, DType t) {
  std::vector<Tensor> parameters;
  std::int64_t count = 0;
  for (const Shape& shape : set.shapes) {
    parameters.push_back(random(shape, t).set_requires_grad());
    count += shape.product();
  }
  const bool f16_model = t == f16;
  optim::AdamW opt(
      parameters, {.lr = 1e-4, .weight_decay = 0.1},
      {.clip_norm = 1,
       .loss_scale = f16_model ? optim::LossScale::dynamic() : optim::LossScale::none()});
  // This work keeps the device busy while the host queues the step; otherwise the time would
  // include the host's gaps.
  const Tensor busy = empty({sized<std::int64_t>(std::int64_t{1} << 30, 64)}, f32, kDevice);
  // The norm reads the gradient: 4 bytes. The update reads gradient, master and both moments (16),
  // and writes master, moments and, in a 16-bit model, the weights (12 or 14).
  const double each = t == f32 ? 4 + 16 + 12 : 4 + 16 + 14;
  report({.work = set.name,
          .mode = "step",
          .dtype = to_string(t),
          .values = marked_us([&](const auto& begin, const auto& end) {
            opt.backward(touch_all(parameters), 1);
            zero_(busy);
            begin();
            opt.step();
            end();
          }),
          .bytes = each * static_cast<double>(count)});
}

}  // namespace

void optim() {
  const std::vector<Shape> model = sized(gpt2(50304, 1024, 768, 12), gpt2(64, 8, 16, 1));
  std::int64_t count = 0;
  for (const Shape& s : model) count += s.product();
  const std::vector<Set> sets{
      {"adamw_124m_1", {{count}}},
      {"adamw_124m_148", model},
      {"adamw_mlp_6",
       sized(std::vector<Shape>{{512, 784}, {512}, {512, 512}, {512}, {10, 512}, {10}},
             std::vector<Shape>{{16, 24}, {16}, {16, 16}, {16}, {10, 16}, {10}})}};
  for (const Set& set : sets) {
    for (const DType t : {f16, bf16, f32}) {
      adamw(set, t);
      release_cached_memory(kDevice);
    }
  }
}

}  // namespace bench
