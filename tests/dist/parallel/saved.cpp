// Runs over a mesh in files, state that its copies divide (ZeRO), and rules that fail on one rank.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "data/files.h"
#include "dist/parallel/models.h"
#include "firn/io/checkpoints.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;
using dist::Mesh;

void train(ParallelGpt& net, optim::Optimizer& opt, int first, int last) {
  for (int step = first; step < last; ++step) {
    const Tensor ids = tokens(12, static_cast<std::uint64_t>(step));
    opt.run_batch(12, 3, [&](std::int64_t from, std::int64_t to) {
      return net.loss(ids.slice(0, from, to));
    });
  }
}

std::string bits_of_weights(const nn::Module& net) {
  Bits out;
  for (const Tensor& p : net.parameters()) out = out + bits_of(p);
  return out.bytes;
}

TEST_CASE("[S40][S43] zero: copies of a divided model divide its state, with the same bits") {
  struct End {
    std::string bits;
    std::vector<double> weights;
  };
  std::vector<End> ends[4];
  for (const int zero : {0, 1, 2, 3})
    ends[zero] = on_ranks<End>(4, [&](const Group& group) {
      const Mesh mesh(group, {.dp = 2, .tp = 2});
      manual_seed(4);
      ParallelGpt net(mesh.tp(), bf16);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.clip_norm = 0.5});
      distribute(opt, mesh, {.zero = zero});
      train(net, opt, 0, 4);
      return End{bits_of_weights(net), weights_of(opt)};
    });
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK((ends[1][r].bits == ends[0][r].bits));
    // The norm that clips is added up in another order, so a few bf16 weights are rounded
    // otherwise.
    for (const int zero : {2, 3})
      CHECK(relative_distance(ends[zero][r].weights, ends[0][r].weights) <= 1e-3);
  }
  CHECK((ends[0][0].bits != ends[0][1].bits));
}

TEST_CASE("[S33][S40] tensor parallel: each rank of a copy has a file, and goes on from it") {
  const test::TempFolder folder;
  const auto part = [&](const Group& group, const dist::MeshSizes& sizes, int first, int last) {
    const Mesh mesh(group, sizes);
    manual_seed(4);
    ParallelGpt net(mesh.tp());
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.clip_norm = 0.5});
    distribute(opt, mesh);
    const std::string file = folder.file(fmt::format("run-{}", mesh.copy().rank()));
    io::Checkpoints checkpoints(file + "-steps");
    if (first > 0) {
      io::load_run(file, {net, opt});
      const auto found = checkpoints.resume({net, opt});
      THREAD_CHECK((found && found->step == first));
    }
    train(net, opt, first, last);
    if (last < 4) {
      io::save_run(file, {net, opt});
      checkpoints.save(last, {net, opt});
    }
    return weights_of(opt);
  };
  const auto on = [&](const dist::MeshSizes& sizes, int first, int last) {
    return on_ranks<std::vector<double>>(
        sizes.dp * sizes.tp, [&](const Group& g) { return part(g, sizes, first, last); });
  };
  const dist::MeshSizes two{.dp = 2, .tp = 2}, one{.tp = 2};
  const auto whole = on(two, 0, 4);
  on(two, 0, 2);
  CHECK(on(two, 2, 4) == whole);
  const auto ends = on(one, 2, 4);  // another number of copies
  for (std::size_t r = 0; r < 2; ++r) CHECK(relative_distance(ends[r], whole[r]) < 1e-5);
}

TEST_CASE(
    "[S33] tensor parallel: parts that would meet in one file, or are mixed up, are refused") {
  const test::TempFolder folder;
  const auto errors = errors_on_ranks(4, [&](const Group& group) {
    const Mesh mesh(group, {.dp = 2, .tp = 2});
    manual_seed(4);
    ParallelGpt net(mesh.tp());
    optim::AdamW opt(net.parameters());
    distribute(opt, mesh);
    const std::string one = folder.file("run");
    const std::string own = fmt::format("{}-{}", one, mesh.tp().rank());
    THREAD_CHECK(mentions(error_of([&] {
                            io::save_run(one, {net, opt});
                          }),
                          {"save_run", "ranks 0 and 1 have different parts", one.c_str()}));
    io::Checkpoints checkpoints(one);
    THREAD_CHECK(mentions(error_of([&] {
                            checkpoints.save(1, {net, opt});
                          }),
                          {"Checkpoints", "ranks 0 and 1 have different parts", one.c_str()}));
    io::Checkpoints of_rank(own + "-steps");
    const int step = group.rank() == 3 ? 2 : 1;
    THREAD_CHECK(mentions(error_of([&] {
                            of_rank.save(step, {net, opt});
                          }),
                          {step == 2 ? "rank 0 saves step 1" : "has failed"}));
    // One rank's disk fails: all ranks know it, and can go on.
    const std::string here = group.rank() == 1 ? own + "/no/such/folder/run" : own;
    THREAD_CHECK(mentions(error_of([&] {
                            io::save_run(here, {net, opt});
                          }),
                          {group.rank() == 1 ? "no/such/folder" : "has failed"}));
    train(net, opt, 0, 1);
    io::save_run(own, {net, opt});
    group.barrier();
    THREAD_CHECK(
        mentions(error_of([&] {
                   io::load_run(fmt::format("{}-{}", one, 1 - mesh.tp().rank()), {net, opt});
                 }),
                 {"optim.place", "part 0 of 2 of stage 0 of 1", "part 1 of 2"}));
    io::load_run(own, {net, opt});
    train(net, opt, 1, 2);
    throw Error("test", "came to its end");
  });
  for (const std::string& e : errors) CHECK(mentions(e, {"came to its end"}));
  manual_seed(4);
  ParallelGpt net{Group()};
  optim::AdamW opt(net.parameters());
  CHECK(mentions(error_of([&] {
                   io::load_run(folder.file("run-0"), {net, opt});
                 }),
                 {"it is of another run"}));
}

TEST_CASE(
    "[S40] tensor parallel: a rule that fails on one rank fails on all, and can be repeated") {
  const auto errors = errors_on_ranks(4, [](const Group& group) {
    const Mesh mesh(group, {.dp = 2, .tp = 2});
    const Tensor weight = full({4}, 1.0).set_requires_grad();
    bool fails = false;
    optim::Custom opt({weight},
                      {.update = [&](const optim::CustomInput& in) -> optim::CustomUpdate {
                        if (fails && group.rank() == 2) throw Error("test", "no more disk");
                        return {in.weight - in.gradient};
                      }});
    distribute(opt, mesh);
    opt.backward((weight * weight).sum());
    fails = true;
    THREAD_CHECK(mentions(error_of([&] { opt.step(); }),
                          {group.rank() == 2 ? "no more disk" : "has failed"}));
    THREAD_CHECK(values_of(weight) == std::vector<double>(4, 1.0));
    fails = false;
    THREAD_CHECK(opt.step().applied());
    THREAD_CHECK(values_of(weight) == std::vector<double>(4, -1.0));
    throw Error("test", "came to its end");
  });
  for (const std::string& e : errors) CHECK(mentions(e, {"came to its end"}));
}

}  // namespace
}  // namespace firn::testing
