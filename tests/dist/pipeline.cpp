// Pipelines of stages beside the model on one rank: weights, reports, what is in memory at a time,
// overflows, and stages that fail.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dist/parallel/stages.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;
using dist::Mesh;
using dist::Pipeline;

std::vector<StageRun> train_on(const dist::MeshSizes& sizes, const StageSetting& s,
                               const std::vector<NamedTensor>& one = {}) {
  return on_ranks<StageRun>(sizes.dp * sizes.tp * sizes.pp,
                            [&](const Group& g) { return train_stages(g, sizes, s, one); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("[S40] pipeline: a language model in stages trains as on one rank") {
  for (const auto& [dtype, bound] : {std::pair(f64, 1e-12), std::pair(f32, 1e-5)}) {
    CAPTURE(dtype);
    const StageSetting s{.dtype = dtype};
    const StageRun one = train_stages(Group(), {}, s);
    CHECK(one.norms[0] > 0.5);  // clipping does something
    for (const dist::MeshSizes& sizes :
         {dist::MeshSizes{.pp = 2}, dist::MeshSizes{.pp = 4}, dist::MeshSizes{.tp = 2, .pp = 2},
          dist::MeshSizes{.dp = 2, .pp = 2}, dist::MeshSizes{.dp = 2, .tp = 2, .pp = 2}}) {
      CAPTURE(sizes.dp, sizes.tp, sizes.pp);
      const auto all = train_on(sizes, s, one.weights);
      for (const StageRun& o : all) {
        CHECK(o.reports == all[0].reports);
        CHECK(relative_distance(o.losses, one.losses) < bound);
        CHECK(relative_distance(o.norms, one.norms) < bound);
        CHECK(o.distance < bound);
      }
    }
  }
}

TEST_CASE(
    "pipeline: stages alone change no bit of what is not clipped, in f16 with a loss scale too") {
  // Micro-batches of other weights: 16 samples in 5, 5, 5 and 1. So the unit of the sums changes.
  for (const DType dtype : {f16, f32}) {
    CAPTURE(dtype);
    StageSetting s{.dtype = dtype, .samples = 16, .micro_batch = 5, .step = {}};
    if (dtype == f16) s.step.loss_scale = optim::LossScale::dynamic({.init = 4096});
    const StageRun one = train_stages(Group(), {}, s);
    for (const StageRun& o : train_on({.pp = 4}, s, one.weights)) {
      CHECK(o.distance == 0);
      CHECK(o.losses == one.losses);
      CHECK(relative_distance(o.norms, one.norms) < 1e-12);
    }
  }
}

TEST_CASE("[S40] pipeline: an overflow in one stage skips the step of all") {
  const StageSetting s{.dtype = f16,
                       .step = {.loss_scale = optim::LossScale::dynamic({.init = 1024})},
                       .steps = 4,
                       .poisoned_step = 2};
  for (const dist::MeshSizes& sizes :
       {dist::MeshSizes{.pp = 4}, dist::MeshSizes{.dp = 2, .tp = 2, .pp = 2}}) {
    const auto all = train_on(sizes, s);
    for (const StageRun& o : all) CHECK(o.reports == all[0].reports);
    CHECK(has(all[0].reports,
              fmt::format("\n{} 2 1 ", static_cast<int>(optim::StepStatus::skipped_non_finite))));
    CHECK(has(all[0].reports,
              fmt::format("\n{} 3 1 ", static_cast<int>(optim::StepStatus::applied))));
    CHECK(has(all[0].reports, fmt::format(" {:a} 7\n", 512.0)));
  }
}

TEST_CASE("[S15] pipeline: a cycle that overflows is computed again by all stages") {
  const StageSetting s{.dtype = f16,
                       .step = {.loss_scale = optim::LossScale::dynamic(
                                    {.init = 0x1p24, .on_overflow = optim::OverflowPolicy::retry})},
                       .steps = 2};
  const StageRun one = train_stages(Group(), {}, s);
  const auto all = train_on({.pp = 2}, s, one.weights);
  for (const StageRun& o : all) {
    CHECK(o.reports == all[0].reports);
    CHECK(o.distance == 0);
    CHECK(o.losses == one.losses);
  }
  CHECK(has(all[0].reports, fmt::format("{} 1 ", static_cast<int>(optim::StepStatus::applied))));
}

TEST_CASE("[S41] pipeline: a copy without samples") {
  const StageSetting s{.samples = 1, .step = {}, .steps = 3};
  const StageRun one = train_stages(Group(), {}, s);
  for (const StageRun& o : train_on({.dp = 2, .pp = 2}, s, one.weights)) CHECK(o.distance < 1e-13);
}

TEST_CASE(
    "pipeline: a stage has no more micro-batches in memory than there are stages from it on") {
  for (const std::int64_t count : {1, 2, 3, 4, 9}) {
    CAPTURE(count);
    const auto all = train_on({.pp = 4}, {.samples = 2 * count, .step = {}, .steps = 2});
    for (std::int64_t s = 0; s < 4; ++s)
      CHECK(all[static_cast<std::size_t>(s)].in_flight == std::min(4 - s, count));
  }
}

TEST_CASE("pipeline: memory in use does not grow with the number of micro-batches") {
  // Four stages keep 4 + 3 + 2 + 1 quarters of a micro-batch's graph, not one for each micro-batch.
  const auto activations = [] {
    return memory_stats().by_owner[static_cast<std::size_t>(Owner::activations)];
  };
  const auto peak = [&](std::int64_t count) {
    std::size_t most = 0;
    reset_peak_memory();
    const std::size_t before = activations().current;
    train_on({.pp = 4}, {.samples = 2 * count, .step = {}, .steps = 1});
    most = activations().peak - before;
    return most;
  };
  const Mesh one{Group()};
  GptStage whole(one, f64);
  std::vector<Tensor> kept;
  const std::size_t before = activations().current;
  for (int i = 0; i < 40; ++i) kept.push_back(whole(tokens(2, 1).slice(1, 0, 6)));
  const double of_micro_batch = static_cast<double>(activations().current - before) / 40;
  kept.clear();
  CAPTURE(of_micro_batch, peak(4));
  CHECK(static_cast<double>(peak(40)) < 6 * of_micro_batch);
  CHECK(static_cast<double>(peak(40)) > 1 * of_micro_batch);
}

// ---- Without a backward pass ----

TEST_CASE("pipeline: infer() gives every stage what the whole model computes") {
  const Tensor ids = tokens(13, 3).slice(1, 0, 6);
  const auto output = [&](const Group& g, const dist::MeshSizes& sizes, std::int64_t micro_batch) {
    const Mesh mesh(g, sizes);
    GptStage stage(mesh, f32);
    Pipeline pipeline(mesh, stage);
    const auto inputs = [&](std::int64_t first, std::int64_t last) {
      return ids.slice(0, first, last);
    };
    const Tensor out = pipeline.infer(
        13, micro_batch, mesh.pp().rank() == 0 ? Pipeline::InputsOf(inputs) : Pipeline::InputsOf());
    return dist::gather_from_ranks(out, mesh.tp());
  };
  const Mesh one{Group()};
  GptStage whole(one, f32);
  const Tensor at_once = whole(ids);
  for (const std::int64_t micro_batch : {1, 5, 13, 40}) {
    CAPTURE(micro_batch);
    const Tensor alone = output(Group(), {}, micro_batch);
    CHECK(alone.shape() == Shape{13, 6, 12});
    CHECK(relative_distance(values_of(alone), values_of(at_once)) < 1e-6);
    for (const dist::MeshSizes& sizes :
         {dist::MeshSizes{.pp = 4}, dist::MeshSizes{.dp = 2, .pp = 2}})
      for (const Tensor& t :
           on_ranks<Tensor>(4, [&](const Group& g) { return output(g, sizes, micro_batch); }))
        CHECK((values_of(t) == values_of(alone) && !t.requires_grad()));
    for (const Tensor& t : on_ranks<Tensor>(
             4, [&](const Group& g) { return output(g, {.tp = 2, .pp = 2}, micro_batch); }))
      CHECK(relative_distance(values_of(t), values_of(alone)) < 1e-5);
  }
}

TEST_CASE("pipeline: infer() between the batches of a training changes none of it") {
  const auto train = [](bool infers) {
    return on_ranks<std::vector<double>>(2, [&](const Group& g) {
      const Mesh mesh(g, {.pp = 2});
      GptStage stage(mesh, f32);
      optim::AdamW opt(stage.parameters(), {}, {.ema = 0.5});
      distribute(opt, mesh);
      Pipeline pipeline(mesh, stage);
      const Tensor ids = tokens(8, 1);
      const auto inputs = [&](std::int64_t first, std::int64_t last) {
        return ids.slice(0, first, last).slice(1, 0, 6);
      };
      std::vector<double> out, averages_differ;
      for (int i = 0; i < 3; ++i) {
        if (infers) {
          const Tensor now = pipeline.infer(8, 3, inputs);
          const optim::AveragedWeights averaged(opt);
          const Tensor average = pipeline.infer(8, 3, inputs);
          averages_differ.push_back(values_of(average) != values_of(now));
        }
        pipeline.run_batch(opt, 8, 2, inputs, [&](const Tensor& logits, auto first, auto last) {
          return cross_entropy(logits, ids.slice(0, first, last).slice(1, 1, 7));
        });
        out.push_back(opt.last_report().loss());
      }
      for (const Tensor& p : stage.parameters())
        for (const double v : values_of(p)) out.push_back(v);
      if (infers && averages_differ != std::vector<double>{0, 1, 1}) out.clear();
      return out;
    });
  };
  const auto without = train(false);
  CHECK(without[0].size() > 3);
  CHECK(train(true) == without);
}

// ---- What fails ----

TEST_CASE("[S42] pipeline: a stage that fails is a RankError on all, and the last step stands") {
  for (const int victim : {0, 1, 3}) {
    CAPTURE(victim);
    const auto what = on_ranks<std::string>(4, [&](const Group& g) -> std::string {
      const Mesh mesh(g, {.pp = 4});
      GptStage stage(mesh, f32);
      optim::AdamW opt(stage.parameters());
      distribute(opt, mesh);
      Pipeline pipeline(mesh, stage);
      const Tensor ids = tokens(16, 1);
      const auto step = [&] {
        pipeline.run_batch(
            opt, 16, 2,
            [&](auto first, auto last) { return ids.slice(0, first, last).slice(1, 0, 6); },
            [&](const Tensor& out, auto first, auto last) {
              return cross_entropy(out, ids.slice(0, first, last).slice(1, 1, 7));
            });
      };
      step();
      const auto stands = weights_of(opt);
      int calls = 0;
      if (g.rank() == victim)
        stage.before = [&calls] {
          if (++calls == 3) throw std::runtime_error("no more disk");
        };
      std::string text;
      try {
        step();
      } catch (const dist::RankError& e) {
        text = std::string("RankError ") + e.what();
      } catch (const std::runtime_error& e) {
        text = e.what();
      }
      if (weights_of(opt) != stands) text += " other weights";
      if (opt.last_report().applied_steps() != 1) text += " another step";
      return text;
    });
    for (int r = 0; r < 4; ++r) {
      CAPTURE(r, what[static_cast<std::size_t>(r)]);
      if (r == victim)
        CHECK(what[static_cast<std::size_t>(r)] == "no more disk");
      else
        CHECK(what[static_cast<std::size_t>(r)].starts_with("RankError ["));
      CHECK_FALSE(has(what[static_cast<std::size_t>(r)], "other weights"));
      CHECK_FALSE(has(what[static_cast<std::size_t>(r)], "another step"));
    }
  }
}

TEST_CASE("[S42] pipeline: a stage that catches its exception is known to all stages at once") {
  struct End {
    std::string error, then;
    double seconds = 0;
  };
  const auto text_of = [](const std::function<void()>& fn) -> std::string {
    try {
      fn();
    } catch (const std::exception& e) {
      return e.what();
    } catch (const int number) {
      return std::to_string(number);
    }
    return {};
  };
  for (const int copies : {1, 2})
    for (const int victim : {0, 1, 2})
      for (const std::string how : {"run_batch", "infer", "number", "refused"}) {
        CAPTURE(copies, victim, how);
        const auto ends = on_ranks<End>(3 * copies, [&](const Group& g) {
          const Mesh mesh(g, {.dp = copies, .pp = 3});
          GptStage stage(mesh, f32);
          optim::AdamW opt(stage.parameters());
          distribute(opt, mesh);
          Pipeline pipeline(mesh, stage);
          const Tensor ids = tokens(16, 1);
          const bool fails = mesh.pp().rank() == victim && mesh.dp().rank() == 0;
          const auto inputs = [&](auto first, auto last) {
            return ids.slice(0, first, last).slice(1, 0, 6);
          };
          const auto step = [&](std::int64_t micro_batch) {
            pipeline.run_batch(
                opt, 16, micro_batch, inputs, [&](const Tensor& out, auto first, auto last) {
                  return cross_entropy(out, ids.slice(0, first, last).slice(1, 1, 7));
                });
          };
          step(2);
          int calls = 0;
          if (fails && how != "refused")
            stage.before = [&] {
              if (++calls != 2) return;
              if (how == "number") throw 7;
              throw std::runtime_error("no more disk");
            };
          const auto begin = std::chrono::steady_clock::now();
          End end;
          end.error = text_of([&] {
            how == "infer" ? void(pipeline.infer(16, 2, inputs))
                           : step(fails && how == "refused" ? 0 : 2);
          });
          end.then = text_of([&] { step(2); });
          end.seconds =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
          return end;
        });
        for (std::size_t r = 0; r < ends.size(); ++r) {
          CAPTURE(r, ends[r].error, ends[r].then);
          // infer() is a call of one copy alone.
          const bool concerned = how != "infer" || static_cast<int>(r) % copies == 0;
          CHECK(ends[r].error.empty() != concerned);
          CHECK(ends[r].then.empty() == (how == "refused"));
          CHECK(ends[r].seconds < 20);
        }
        if (how == "run_batch" && copies == 1) {
          const std::string& other = ends[victim == 0 ? 1 : 0].error;
          CAPTURE(other);
          CHECK(has(other, "has failed: no more disk"));
        }
      }
}

TEST_CASE("pipeline: what run_batch() refuses") {
  const auto errors = [](const std::function<void(const Mesh&, GptStage&, optim::Optimizer&)>& fn) {
    return errors_on_ranks(2, [&](const Group& g) {
      const Mesh mesh(g, {.pp = 2});
      GptStage stage(mesh, f32);
      optim::SGD opt(stage.parameters());
      fn(mesh, stage, opt);
    });
  };
  const auto inputs = [](std::int64_t first, std::int64_t last) {
    return tokens(8, 1).slice(0, first, last).slice(1, 0, 6);
  };
  const auto loss = [](const Tensor& out, std::int64_t first, std::int64_t last) {
    return cross_entropy(out, tokens(8, 1).slice(0, first, last).slice(1, 1, 7));
  };
  for (const std::string& e : errors([&](const Mesh&mesh, GptStage&stage, optim::Optimizer&opt) {
         Pipeline(mesh, stage).run_batch(opt, 8, 2, inputs, loss);
       }))
    CHECK(has(e, "call distribute(optimizer, mesh) first"));
  for (const std::string& e : errors([&](const Mesh&mesh, GptStage&stage, optim::Optimizer&opt) {
         distribute(opt, mesh);
         Pipeline(mesh, stage).run_batch(opt, 8, 2 + mesh.pp().rank(), inputs, loss);
       }))
    CHECK(has(e, "stage 1 has 8 samples in micro-batches of 3, and stage 0 8 in 2"));
  const auto missing = errors([&](const Mesh& mesh, GptStage& stage, optim::Optimizer& opt) {
    distribute(opt, mesh);
    Pipeline(mesh, stage).run_batch(opt, 8, 2, {}, {});
  });
  CHECK(has(missing[0], "inputs_of is empty on the first stage"));
  CHECK(has(missing[1], "loss_of is empty on the last stage"));
  for (const std::string& e : errors([&](const Mesh&mesh, GptStage&stage, optim::Optimizer&opt) {
         distribute(opt, mesh);
         Pipeline(mesh, stage).run_batch(opt, 0, 2, inputs, loss);
       }))
    CHECK(has(e, "a batch of 0 samples"));
  for (const std::string& e : errors([&](const Mesh&mesh, GptStage&stage, optim::Optimizer&opt) {
         distribute(opt, mesh);
         plan_memory([&] { Pipeline(mesh, stage).run_batch(opt, 8, 2, inputs, loss); });
       }))
    CHECK(has(e, "cannot be planned"));
  const auto cut = errors([&](const Mesh& mesh, GptStage& stage, optim::Optimizer& opt) {
    distribute(opt, mesh);
    struct Cut : nn::Module {
      nn::Module* inner = nullptr;
      bool last = false;
      Tensor forward(const Tensor& x) override { return (*inner)(last ? x.detach() : x); }
    } outer;
    outer.inner = &stage;
    outer.last = mesh.pp().rank() == 1;
    Pipeline(mesh, outer).run_batch(opt, 8, 2, inputs, loss);
  });
  CHECK(has(cut[1], "the output of stage 1 does not depend on its input"));
  CHECK_FALSE(cut[0].empty());
}

TEST_CASE("pipeline: what infer() refuses") {
  const auto errors = [](const std::function<Tensor(Pipeline&, int)>& infer) {
    return errors_on_ranks(2, [&](const Group& g) {
      const Mesh mesh(g, {.pp = 2});
      GptStage stage(mesh, f32);
      Pipeline pipeline(mesh, stage);
      infer(pipeline, g.rank());
    });
  };
  const auto inputs = [](std::int64_t first, std::int64_t last) {
    return tokens(8, 1).slice(0, first, last).slice(1, 0, 6);
  };
  for (const std::string& e :
       errors([&](Pipeline&p, int rank) { return p.infer(8 + rank, 2, inputs); }))
    CHECK(has(e, "stage 1 has 9 samples in micro-batches of 2, and stage 0 8 in 2"));
  for (const std::string& e : errors([&](Pipeline&p, int) { return p.infer(8, 0, inputs); }))
    CHECK(has(e, "a batch of 8 samples in micro-batches of 0"));
  const auto missing = errors([](Pipeline& p, int) { return p.infer(8, 2, {}); });
  CHECK(has(missing[0], "inputs_of is empty on the first stage"));
  CHECK_FALSE(missing[1].empty());
  for (const std::string& e : errors([&](Pipeline&p, int) {
         Tensor out;
         plan_memory([&] { out = p.infer(8, 2, inputs); });
         return out;
       }))
    CHECK(has(e, "cannot be planned"));
  for (const std::string& e : errors_on_ranks(2, [&](const Group& g) {
         const Mesh mesh(g, {.pp = 2});
         GptStage stage(mesh, f32);
         optim::SGD opt(stage.parameters());
         distribute(opt, mesh);
         Pipeline pipeline(mesh, stage);
         if (g.rank() == 0) pipeline.infer(8, 2, inputs);
         pipeline.run_batch(opt, 8, 2, inputs, [](const Tensor& out, auto, auto) {
           return cross_entropy(out, tokens(8, 1).slice(1, 1, 7));
         });
       }))
    CHECK(has(e, "stage 1 calls run_batch(), and stage 0 calls infer()"));
}

TEST_CASE("pipeline: distribute() compares what stages must have alike") {
  const auto errors = errors_on_ranks(2, [](const Group& g) {
    const Mesh mesh(g, {.pp = 2});
    GptStage stage(mesh, f32);
    optim::AdamW opt(stage.parameters(), {}, {.clip_norm = 1.0 + mesh.pp().rank()});
    distribute(opt, mesh);
  });
  for (const std::string& e : errors) CHECK(has(e, "the optimizer of rank 1 is not like that of"));
}

}  // namespace
}  // namespace firn::testing
