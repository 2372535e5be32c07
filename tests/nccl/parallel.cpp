// Divided layers and pipelines on devices, beside the model on one rank of the CPU.
#include <mutex>

#include "dist/parallel/stages.h"
#include "nccl/ranks.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::Mesh;

std::vector<StageRun> train_on_devices(const dist::MeshSizes& sizes, const StageSetting& s,
                                       const std::vector<NamedTensor>& one = {}) {
  const int ranks = sizes.dp * sizes.tp * sizes.pp;
  std::vector<StageRun> out(static_cast<std::size_t>(ranks));
  on_devices(ranks, [&](const Group& g) {
    out[static_cast<std::size_t>(g.rank())] = train_stages(g, sizes, s, one);
  });
  return out;
}

TEST_CASE("[S40] nccl: a language model in parts and stages and copies trains as on one rank") {
  const StageSetting s{.dtype = f32, .samples = 3, .steps = 2};
  const StageRun one = train_stages(Group(), {}, s);
  CHECK(one.norms[0] > 0.5);  // clipping does something
  for (const dist::MeshSizes& sizes :
       {dist::MeshSizes{.tp = 2}, dist::MeshSizes{.pp = 2}, dist::MeshSizes{.tp = 2, .pp = 2},
        dist::MeshSizes{.dp = 2, .pp = 2}}) {
    CAPTURE(sizes.dp, sizes.tp, sizes.pp);
    const FreshNccl fresh;
    for (const StageRun& run : train_on_devices(sizes, s, one.weights)) {
      CHECK(relative_distance(run.losses, one.losses) < 1e-5);
      CHECK(relative_distance(run.norms, one.norms) < 1e-5);
      CHECK(run.distance < 1e-5);
    }
  }
}

TEST_CASE("[S40] nccl: an overflow in one stage on a device skips the step of all") {
  const FreshNccl fresh;
  const StageSetting s{.dtype = f16,
                       .samples = 2,
                       .step = {.loss_scale = optim::LossScale::dynamic({.init = 1024})},
                       .steps = 3,
                       .poisoned_step = 1};
  const auto all = train_on_devices({.tp = 2, .pp = 2}, s);
  for (const StageRun& run : all) CHECK(run.reports == all[0].reports);
  CHECK(mentions(all[0].reports,
                 {fmt::format("\n{} 1 1 ", static_cast<int>(optim::StepStatus::skipped_non_finite)),
                  fmt::format("\n{} 2 1 ", static_cast<int>(optim::StepStatus::applied))}));
}

TEST_CASE("[S40] nccl: copies of a divided model divide its state") {
  const auto weights = [](int zero) {
    std::vector<std::vector<double>> out(4);
    on_devices(4, [&](const Group& g) {
      const Mesh mesh(g, {.dp = 2, .tp = 2});
      manual_seed(4);
      ParallelGpt net(mesh.tp(), f32);
      net.to(g.device());
      optim::AdamW opt(net.named_parameters(), {.lr = 1e-2}, {.clip_norm = 0.5});
      dist::distribute(opt, mesh, {.zero = zero});
      for (std::uint64_t i = 0; i < 2; ++i) {
        const Tensor ids = tokens(4, i).to(g.device());
        opt.run_batch(4, 1, [&](std::int64_t first, std::int64_t last) {
          return net.loss(ids.slice(0, first, last));
        });
      }
      const optim::GatheredWeights whole(opt);
      for (const Tensor& p : net.parameters())
        for (const double v : values_of(p.detach().to(Device::cpu())))
          out[static_cast<std::size_t>(g.rank())].push_back(v);
    });
    return out;
  };
  const FreshNccl fresh;
  const auto plain = weights(0);
  CHECK(plain[0].size() > 100);
  CHECK((plain[0] == plain[2] && plain[0] != plain[1]));
  for (const int zero : {1, 2, 3}) {
    CAPTURE(zero);
    const auto divided = weights(zero);
    for (std::size_t r = 0; r < 4; ++r) CHECK(relative_distance(divided[r], plain[r]) < 1e-6);
  }
}

TEST_CASE("nccl: infer() gives every stage on its device what the whole model computes") {
  const FreshNccl fresh;
  const Tensor ids = tokens(5, 3).slice(1, 0, 6);
  const auto output = [&](const Group& g, const dist::MeshSizes& sizes) {
    const Mesh mesh(g, sizes);
    GptStage stage(mesh, f32);
    dist::Pipeline pipeline(mesh, stage);
    const Tensor there = ids.to(g.device());
    const Tensor out = pipeline.infer(
        5, 2, [&](std::int64_t first, std::int64_t last) { return there.slice(0, first, last); });
    return values_of(dist::gather_from_ranks(out, mesh.tp()).to(Device::cpu()));
  };
  const std::vector<double> one = output(Group(), {});
  std::vector<std::vector<double>> all(4);
  on_devices(4, [&](const Group& g) {
    all[static_cast<std::size_t>(g.rank())] = output(g, {.tp = 2, .pp = 2});
  });
  for (const auto& values : all) CHECK(relative_distance(values, one) < 1e-5);
}

TEST_CASE("nccl: a model of one rank is on the default device, where it infers and trains") {
  const Device device = Device::cuda(0);
  const Tensor ids = tokens(5, 3);
  const auto run = [&](Device where) {
    const DeviceScope scope(where);
    const Mesh one{Group()};
    GptStage stage(one, f32);  // its layers are wanted on the group's device, the CPU
    stage.to(where);
    const dist::ParallelSwiGLU gated(Group(), 8, 16);
    const dist::ParallelMultiHeadAttention heads(Group(), 8, 2);
    for (const Tensor& p : stage.parameters()) CHECK(p.device() == where);
    CHECK(gated.down.weight.device() == where);
    CHECK(heads.heads.out.weight.device() == where);
    const Tensor there = ids.to(where);
    optim::AdamW opt(stage.parameters());
    distribute(opt, one);
    dist::Pipeline pipeline(one, stage);
    const auto inputs = [&](std::int64_t first, std::int64_t last) {
      return there.slice(0, first, last).slice(1, 0, 6);
    };
    std::vector<double> out = values_of(pipeline.infer(5, 2, inputs).to(Device::cpu()));
    for (int i = 0; i < 4; ++i)
      out.push_back(pipeline
                        .run_batch(opt, 5, 2, inputs,
                                   [&](const Tensor& logits, auto first, auto last) {
                                     return cross_entropy(
                                         logits, there.slice(0, first, last).slice(1, 1, 7));
                                   })
                        .loss());
    return out;
  };
  CHECK(relative_distance(run(device), run(Device::cpu())) < 1e-5);
  const dist::ParallelSwiGLU gated(Group(), 8, 16, {.device = device});
  const dist::ParallelMultiHeadAttention heads(Group(), 8, 2, {.device = device});
  CHECK(gated.gate.weight.device() == device);
  CHECK(heads.heads.out.weight.device() == device);
}

TEST_CASE("nccl: cross-entropy of divided classes on devices, with every option") {
  const FreshNccl fresh;
  const Tensor target = tensor(std::vector<std::int64_t>{0, 11, 5, -1, 6, 3, 9}, {7});
  manual_seed(8);
  const Tensor logits = randn({7, 12}), class_weights = rand({12}), row_weights = rand({7});
  CrossEntropyOptions options;
  options.class_weights = class_weights;
  options.row_weights = row_weights;
  options.ignore_index = -1;
  options.label_smoothing = 0.2;
  options.z_loss = 0.01;
  const Tensor whole = logits.clone().set_requires_grad();
  const Loss one = cross_entropy(whole, target, options);
  backward(one.sum);
  on_devices(4, [&](const Group& g) {
    const Device device = g.device();
    CrossEntropyOptions here = options;
    here.class_weights = class_weights.to(device);
    here.row_weights = row_weights.to(device);
    const Tensor part =
        logits.slice(1, 3 * g.rank(), 3 * g.rank() + 3).contiguous().to(device).set_requires_grad();
    const Loss loss = dist::vocab_parallel_cross_entropy(part, target.to(device), g, here);
    backward(loss.sum);
    const auto near = [](double a, double b) { return std::abs(a - b) < 1e-5 * std::abs(b); };
    if (!near(loss.sum.item(), one.sum.item()) || !near(loss.weight.item(), one.weight.item()))
      throw std::runtime_error("another loss");
    if (relative_distance(values_of(part.grad().to(Device::cpu())),
                          values_of(whole.grad().slice(1, 3 * g.rank(), 3 * g.rank() + 3))) > 1e-5)
      throw std::runtime_error("another gradient");
  });
}

TEST_CASE("nccl: what divided layers refuse on devices") {
  const auto errors = [](const RankFunction& rank) {
    const FreshNccl fresh;
    std::vector<std::string> out(2);
    on_devices(2, [&](const Group& g) {
      try {
        rank(g);
      } catch (const Error& e) {
        out[static_cast<std::size_t>(g.rank())] = e.what();
      }
    });
    return out;
  };
  for (const auto& e : errors([](const Group& g) { dist::copy_to_ranks(ones({2, 2}), g); }))
    CHECK(mentions(e, {"[copy_to_ranks]", "is not on cuda:"}));
  for (const auto& e :
       errors([](const Group& g) { dist::ParallelSwiGLU(g, 4, 4, {.device = Device::cpu()}); }))
    CHECK(mentions(e, {"[ParallelSwiGLU] the device is cpu", "set options.device"}));
  for (const auto& e : errors([](const Group& g) {
         const Mesh mesh(g, {.tp = 2});
         ParallelGpt net(mesh.tp());
         net.to(Device::cpu());
         optim::SGD opt(net.parameters());
         dist::distribute(opt, mesh);
       }))
    CHECK(mentions(e, {"the parameters are on cpu, and the group exchanges tensors on cuda"}));
  // A device finds bad indices, and says so when the host waits for it.
  for (const auto& e : errors([](const Group& g) {
         dist::VocabParallelEmbedding embed(g, 12, 4);
         embed(tensor(std::vector<std::int64_t>{1, 12}, {2}).to(g.device()));
         synchronize(g.device());
       }))
    CHECK(mentions(e, {"[embedding]"}));
  for (const auto& e : errors([](const Group& g) {
         dist::vocab_parallel_cross_entropy(
             ones({2, 3}, f32, g.device()),
             tensor(std::vector<std::int64_t>{1, 6}, {2}).to(g.device()), g);
         synchronize(g.device());
       }))
    CHECK_FALSE(e.empty());
}

}  // namespace
}  // namespace firn::testing
