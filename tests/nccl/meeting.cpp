// How ranks on devices come together, and what is refused.
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "dist/nccl/library.h"
#include "firn/runtime/graph.h"
#include "nccl/ranks.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::RankError;

TEST_CASE("nccl: ranks meet through a file, which goes when they have met") {
  const FreshNccl fresh;
  const std::string path = file_path("meet");
  for (int round = 0; round < 2; ++round) {  // the same path again
    const auto errors = by_file(3, path, 20, [](const Group& group) {
      const Tensor x = full({7}, group.rank() + 1, f32, group.device());
      group.all_reduce(x);
      if (x.to(Device::cpu()).to_vector<float>()[6] != 6) throw std::runtime_error("a sum");
      group.barrier();
    });
    for (const auto& e : errors) CHECK(e.empty());
    CHECK_FALSE(std::filesystem::exists(path));
  }
}

TEST_CASE("nccl: a file that is there already, is another's, or does not come") {
  const FreshNccl fresh;
  const std::string path = file_path("old");
  std::ofstream(path) << "left behind";
  auto errors = by_file(2, path, 0.3, [](const Group&) {});
  CHECK(mentions(errors[0], {"there is such a file already", path, "remove it"}));
  CHECK(mentions(errors[1], {"is no file of nccl_group()"}));
  std::filesystem::remove(path);

  errors = by_file(
      2, path, 0.5, [](const Group&) {}, 3);
  CHECK(mentions(errors[0],
                 {"rank 0 waited 0.5 s for the other ranks", "the rendezvous of the ranks"}));
  CHECK(mentions(errors[1], {"is of 2 ranks with NCCL 2.", "rank 1 is of 3"}));
  CHECK_FALSE(std::filesystem::exists(path));

  const std::string late =
      error_of([&] { dist::nccl_group(1, 2, path, Device::cuda(1), {.deadline = 0.1}); });
  CHECK(mentions(late, {"rank 0 did not write", "within 0.1 s"}));
  const std::string nowhere =
      error_of([&] { dist::nccl_group(0, 1, "/no/such/folder/id", Device::cuda(0)); });
  CHECK(mentions(nowhere, {"/no/such/folder/id", "cannot be written"}));
}

TEST_CASE("nccl: what is refused breaks nothing") {
  const FreshNccl fresh;
  const Group alone;
  CHECK(mentions(error_of([&] { dist::nccl_group(alone, Device::cpu()); }),
                 {"nccl_group", "cpu is not a CUDA device"}));
  CHECK(mentions(error_of([&] { dist::nccl_group(alone, Device::cuda(99)); }), {"cuda:99"}));
  CHECK(mentions(error_of([&] { dist::nccl_group(alone, Device::cuda(0), {.deadline = 0}); }),
                 {"the deadline is 0"}));
  CHECK(mentions(error_of([&] { dist::nccl_group(2, 2, "x", Device::cuda(0)); }),
                 {"rank 2 of 2 ranks"}));
  const Group group = dist::nccl_group(alone, Device::cuda(0));
  CHECK(mentions(error_of([&] { dist::nccl_group(group, Device::cuda(0)); }),
                 {"the bootstrap group is on cuda:0"}));
  CHECK(mentions(error_of([&] { group.all_reduce(ones({3}, f32, Device::cpu())); }),
                 {"is not on cuda:0", "to(group.device())"}));
  CHECK(mentions(error_of([&] { group.all_reduce(ones({3}, f32, Device::cuda(1))); }),
                 {"is not on cuda:0"}));
  CHECK(mentions(error_of([&] { group.all_reduce(ones({3}, f16, Device::cuda(0))); }),
                 {"cast it to f32"}));
  const Tensor x = ones({3}, f32, Device::cuda(0));
  const std::string captured =
      error_of([&] { graph::Graph::capture(Device::cuda(0), [&] { group.broadcast(x); }); });
  CHECK(mentions(captured, {"broadcast", "a replay could not compare the ranks' calls"}));
  group.all_reduce(x);
  CHECK(x.to(Device::cpu()).to_vector<float>()[0] == 1);
}

TEST_CASE("nccl: without a library that is new enough, the error says what was tried") {
  const std::string error = error_of([] {
    dist::load_nccl({"libnccl-that-is-not.so.2", NCCL_OLD, NCCL_LACKING});
  });
  CHECK(mentions(error, {"libnccl-that-is-not.so.2: ", "is NCCL 2.4.8, older than 2.18.1",
                         "has no function ncclAllGather", "nvidia-nccl", "FIRN_NCCL_LIBRARY"}));
  CHECK(dist::nccl_version_text(22809) == "2.28.9");
}

}  // namespace
}  // namespace firn::testing
