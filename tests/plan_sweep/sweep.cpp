// One training of one model under one budget, as scripts/plan-sweep runs them: the size of
// micro-batches is planned, then a step is made, and the allocator and the system say what it took.
// Prints one line of JSON.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "firn/firn.h"

using namespace firn;

namespace {

/// A model and the loss of samples [first, last) of its batch.
struct Task {
  std::unique_ptr<nn::Module> net;
  std::int64_t samples = 0;
  std::function<Loss(std::int64_t first, std::int64_t last)> loss;
};

struct Cnn : nn::Module {
  nn::Conv2d conv1{3, 32, 3}, conv2{32, 64, 3};
  nn::GroupNorm norm{8, 64};
  nn::Dropout drop{0.25};
  nn::Linear out{64 * 14 * 14, 10};
  FIRN_MEMBERS(conv1, conv2, norm, drop, out)
  Tensor forward(const Tensor& x) override {
    const Tensor y = max_pool2d(relu(norm(conv2(relu(conv1(x))))), 2);
    return out(drop(flatten(y, 1)));
  }
};

struct ResNet : nn::Module {
  nn::Conv2d conv{3, 16, 3, {.padding = 1}};
  nn::Sequential stages;
  nn::Linear out{64, 10};
  FIRN_MEMBERS(conv, stages, out)
  ResNet() {
    std::int64_t channels = 16;
    for (const std::int64_t wider : {16, 32, 64}) {
      stages.push_back(nn::BasicBlock(channels, wider, channels == wider ? 1 : 2,
                                      {.norm = {.accumulation = nn::BatchNormMode::per_step}}));
      channels = wider;
    }
  }
  Tensor forward(const Tensor& x) override { return out(mean(stages(conv(x)), {2, 3})); }
};

struct Block : nn::Module {
  nn::LayerNorm norm1{128}, norm2{128};
  nn::MultiHeadAttention attention{128, 4, {.causal = true}};
  nn::Linear up{128, 512}, down{512, 128};
  FIRN_MEMBERS(norm1, norm2, attention, up, down)
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(norm1(x));
    return y + down(gelu(up(norm2(y))));
  }
};
struct Gpt : nn::Module {
  nn::Embedding tokens{512, 128};
  std::vector<Block> blocks = std::vector<Block>(3);
  nn::Linear head{128, 512};
  FIRN_MEMBERS(tokens, blocks, head)
  Tensor forward(const Tensor& x) override {
    Tensor y = tokens(x);
    for (Block& b : blocks) y = b(y);
    return head(y);
  }
};

struct UNet : nn::Module {
  nn::Conv2d down1{3, 16, 3, {.padding = 1}}, down2{16, 32, 3, {.stride = 2, .padding = 1}};
  nn::Conv2d middle{32, 32, 3, {.padding = 1}};
  nn::ConvTranspose2d up{32, 16, 2, {.stride = 2}};
  nn::Conv2d out{32, 3, 3, {.padding = 1}};
  FIRN_MEMBERS(down1, down2, middle, up, out)
  Tensor forward(const Tensor& x) override {
    const Tensor a = relu(down1(x));
    const Tensor b = relu(middle(relu(down2(a))));
    return out(cat({a, relu(up(b))}, 1));
  }
};

template <class Net, class LossOf>
Task task_of(std::unique_ptr<Net> net, DType dtype, const Tensor& x, const Tensor& y,
             LossOf loss_of) {
  net->to(dtype);
  const Tensor input = is_floating(x.dtype()) ? x.to(dtype) : x;
  Net* const model = net.get();
  return {std::move(net), x.size(0), [=](std::int64_t first, std::int64_t last) {
            return loss_of((*model)(input.slice(0, first, last)), y.slice(0, first, last));
          }};
}

Task make_task(const std::string& name, DType dtype) {
  const auto classes = [](const Tensor& logits, const Tensor& y) {
    return cross_entropy(logits, y);
  };
  if (name == "mlp")
    return task_of(std::make_unique<nn::MLP>(std::vector<std::int64_t>{784, 1024, 1024, 10}), dtype,
                   randn({4096, 784}), zeros({4096}, i64), classes);
  if (name == "cnn")
    return task_of(std::make_unique<Cnn>(), dtype, randn({64, 3, 32, 32}), zeros({64}, i64),
                   classes);
  if (name == "resnet")
    return task_of(std::make_unique<ResNet>(), dtype, randn({128, 3, 32, 32}), zeros({128}, i64),
                   classes);
  if (name == "gpt")
    return task_of(std::make_unique<Gpt>(), dtype, zeros({32, 129}, i64).slice(1, 0, 128),
                   zeros({32, 128}, i64), [](const Tensor& logits, const Tensor& y) {
                     return cross_entropy(reshape(logits, {-1, 512}), flatten(y));
                   });
  if (name == "unet")
    return task_of(std::make_unique<UNet>(), dtype, randn({64, 3, 64, 64}),
                   randn({64, 3, 64, 64}).to(dtype),
                   [](const Tensor& made, const Tensor& y) { return mse_loss(made, y); });
  throw Error("plan-sweep", "no model " + name, "mlp, cnn, resnet, gpt or unet");
}

/// Kilobytes after `field` in /proc/self/status, as bytes.
std::size_t status_of(const std::string& field) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    std::size_t kib = 0;
    if (word == field && in >> kib) return kib * 1024;
  }
  return 0;
}

/// Blocks, or in models without them the whole, are computed again.
void checkpoint(nn::Module& net, const std::string& keep) {
  if (keep == "everything") return;
  if (keep != "inputs" && keep != "products")
    throw Error("plan-sweep", "nothing keeps " + keep, "everything, inputs or products");
  const Keep kept = keep == "inputs" ? Keep::inputs : Keep::products;
  if (dynamic_cast<Gpt*>(&net) || dynamic_cast<ResNet*>(&net)) {
    nn::checkpoint_blocks(net, {.keep = kept});
  } else {
    net.set_checkpoint(CheckpointOptions{.keep = kept});
  }
}

void run(const std::string& name, const std::string& dtype, const std::string& keep, double share) {
  manual_seed(1);
  const Task task = make_task(name, dtype == "f16" ? f16 : dtype == "bf16" ? bf16 : f32);
  checkpoint(*task.net, keep);
  optim::AdamW opt(task.net->parameters());
  const auto plan = [&](std::int64_t size) {
    return plan_memory([&] {
             const RollbackPoint start;  // as run_batch() has one, to begin anew
             opt.run_batch(task.samples, size, task.loss);
           })
        .peak;
  };
  // The share says how far the budget lies between the least that can do and the whole batch.
  const std::size_t least = plan(1), most = plan(task.samples);
  const std::size_t budget =
      least + static_cast<std::size_t>(share * static_cast<double>(most - least));
  // What the libraries keep from their first call on is no part of a step.
  opt.run_batch(1, std::int64_t{1}, task.loss);
  release_cached_memory();
  set_memory_limit(budget);
  reset_peak_memory();
  const std::size_t held = memory_stats().reserved, rss = status_of("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins anew
  const auto report = opt.run_batch(
      task.samples, {.size = 0, .budget = budget, .split_statistics = true}, task.loss);
  const MemoryStats stats = memory_stats();
  const std::size_t planned = plan(report.micro_batch());
  fmt::print(
      "{{\"model\": \"{}\", \"dtype\": \"{}\", \"keep\": \"{}\", \"share\": {:.3f}, \"budget\": "
      "{}, \"micro_batch\": "
      "{}, "
      "\"planned\": {}, \"peak\": {}, \"reserved_peak\": {}, \"held\": {}, \"rss\": {}, "
      "\"retries\": "
      "{}, \"loss\": {:.9g}}}\n",
      name, dtype, keep, share, budget, report.micro_batch(), planned, stats.total.peak,
      stats.reserved_peak, held, status_of("VmHWM:") - rss + held, report.memory_retries(),
      report.loss());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fputs("usage: firn_plan_sweep MODEL DTYPE KEEP SHARE\n", stderr);
    return 2;
  }
  run(argv[1], argv[2], argv[3], std::strtod(argv[4], nullptr));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
