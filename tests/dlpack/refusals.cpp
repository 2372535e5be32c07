// What cannot be exchanged is refused, with a message that names it. The caller then still has what
// it had.
#include <functional>
#include <string>
#include <vector>

#include "dlpack/foreign.h"
#include "firn/runtime/graph.h"
#include "support/catch.h"
#include "support/dry_run.h"

namespace firn::testing {
namespace {

using io::from_dlpack;
using io::to_dlpack;

struct Hostile {
  std::function<void(Foreign<>&)> change;
  std::string said;
};

void set_shape(Foreign<>& f, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
  f.shape = std::move(shape);
  f.strides = std::move(strides);
  f.fields().shape = f.shape.data();
  f.fields().strides = f.strides.empty() ? nullptr : f.strides.data();
  f.fields().ndim = static_cast<std::int32_t>(f.shape.size());
}

std::vector<Hostile> hostile_ones() {
  const std::int64_t large = std::int64_t{1} << 40;
  const auto type = [](std::uint8_t code, std::uint8_t bits, std::uint16_t lanes) {
    return [=](Foreign<>& f) { f.fields().dtype = {code, bits, lanes}; };
  };
  const auto sizes = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
    return [=](Foreign<>& f) { set_shape(f, shape, strides); };
  };
  const auto device = [](int kind, std::int32_t number) {
    return [=](Foreign<>& f) { f.fields().device = {static_cast<DLDeviceType>(kind), number}; };
  };
  return {
      {[](Foreign<>& f) {
         f.give()->version = {2, 0};
       },
       "of DLPack 2.0, and firn reads version 1"},
      {[](Foreign<>& f) {
         f.give()->version = {0, 8};
       },
       "of DLPack 0.8"},
      {[](Foreign<>& f) { f.fields().ndim = -1; }, "it has -1 axes"},
      {[](Foreign<>& f) { f.fields().ndim = 9; }, "it has 9 axes, and a tensor has 0 to 8"},
      {[](Foreign<>& f) { f.fields().ndim = INT32_MAX; }, "it has 2147483647 axes"},
      {[](Foreign<>& f) { f.fields().shape = nullptr; }, "the address of its sizes is null"},
      {[](Foreign<>& f) { f.fields().data = nullptr; }, "the address of the elements is null"},
      {type(0, 128, 1), "the elements are int128"},
      {type(1, 64, 1), "the elements are uint64"},
      {type(2, 8, 1), "the elements are float8"},
      {type(2, 32, 4), "the elements are float32x4"},
      {type(2, 32, 0), "the elements are float32x0"},
      {type(3, 64, 1), "the elements are opaque64"},
      {type(5, 64, 1), "the elements are complex64"},
      {type(6, 1, 1), "the elements are bool1"},
      {type(11, 8, 1), "the elements are type code 11 of 8 bits"},
      {type(255, 255, 65535), "type code 255 of 255 bitsx65535"},
      {device(4, 0), "the device is of type 4"},
      {device(10, 0), "the device is of type 10"},
      {device(13, 0), "the device is of type 13"},
      {device(0, 0), "the device is of type 0"},
      {device(-7, 0), "the device is of type -7"},
      {device(2, -1), "the CUDA device has the number -1"},
      {device(2, 128), "the CUDA device has the number 128"},
      {device(2, 100), "cuda:100"},
      {sizes({2, -3}), "the size -3 is negative in shape [2, -3]"},
      {sizes({INT64_MIN}), "is negative"},
      {sizes({large, large}), "too many elements"},
      {sizes({0, large, large}), "too many elements"},
      {sizes({INT64_MAX}), "too many elements"},
      {sizes({2, 3}, {-3, 1}), "the stride -3 is negative in strides [-3, 1]"},
      {sizes({2}, {INT64_MIN}), "is negative"},
      {sizes({2}, {INT64_MAX}), "too large"},
      {sizes({large, 2}, {large, 1}), "does not fit in 64 bits"},
      {sizes({1024, 2}, {std::int64_t{1} << 50, 1}), "reaches over"},
      {[](Foreign<>& f) { f.fields().byte_offset = UINT64_MAX; }, "pass the last address"},
      {[](Foreign<>& f) { f.fields().byte_offset = UINT64_MAX - 63; }, "pass the last address"},
      {[](Foreign<>& f) { f.fields().data = reinterpret_cast<void*>(UINT64_MAX - 3); },
       "pass the last address"},
      {[](Foreign<>& f) { f.fields().byte_offset = 2; }, "2 bytes behind a multiple of its size"},
  };
}

TEST_CASE("dlpack: hostile structs are refused by name, and stay the caller's") {
  const std::size_t before = memory_stats().total.current;
  int number = 0;
  for (const Hostile& hostile : hostile_ones()) {
    Foreign<> foreign(ones({2, 3}));
    hostile.change(foreign);
    const std::string said = error_of([&] { from_dlpack(foreign.give()); });
    CAPTURE(number++, hostile.said, said);
    CHECK(said.find("[from_dlpack]") == 0);
    CHECK(said.find(hostile.said) != std::string::npos);
    CHECK(foreign.deleted() == 0);
    io::delete_dlpack(foreign.give());
    CHECK(foreign.deleted() == 1);
  }
  CHECK(memory_stats().total.current == before);
}

TEST_CASE("dlpack: the older form is checked alike", "[host]") {
  Foreign<DLManagedTensor> foreign(ones({2, 3}));
  foreign.fields().dtype.lanes = 2;
  CHECK(error_of([&] {
          io::from_unversioned_dlpack(foreign.give());
        }).find("[from_unversioned_dlpack] the elements are float32x2") == 0);
  CHECK(error_of([] { io::from_unversioned_dlpack(nullptr); }).find("is null") !=
        std::string::npos);
  CHECK(error_of([] { from_dlpack(nullptr); }).find("is null") != std::string::npos);
  CHECK(foreign.deleted() == 0);
}

class Provider final : public StorageProvider {
 public:
  void fetch(Storage& storage) override { storage.come(block_, 0); }

 private:
  Ref<Storage> block_ = Storage::allocate(64, default_device());
};

TEST_CASE("dlpack: tensors that cannot be given away") {
  CHECK(error_of([] { to_dlpack({}); }).find("[to_dlpack]") == 0);
  const Tensor leaf = ones({2}).set_requires_grad();
  for (const Tensor& t : {leaf, leaf * 2}) {
    const std::string said = error_of([&] { to_dlpack(t); });
    CHECK(said.find("requires a gradient") != std::string::npos);
    CHECK(said.find("x.detach()") != std::string::npos);
    CHECK(error_of([&] { io::to_unversioned_dlpack(t); }).find("[to_unversioned_dlpack]") == 0);
  }
  CHECK(from_dlpack(to_dlpack(leaf.detach())).storage() == leaf.storage());

  Provider provider;
  const Tensor provided = ones({2});
  provided.storage()->set_provider(&provider);
  CHECK(error_of([&] { to_dlpack(provided); }).find("comes and goes") != std::string::npos);
  provided.storage()->fetch();  // here for a moment
  CHECK(error_of([&] { to_dlpack(provided); }).find("comes and goes") != std::string::npos);

  const Tensor planned = ones({2});
  const DryRun dry;
  CHECK(error_of([&] { to_dlpack(planned); }).find("in a plan") != std::string::npos);
}

TEST_CASE("dlpack: nothing is exchanged while a graph is captured on the device", "[gpu]") {
  const Tensor x = ones({2}), y = ones({2});
  Foreign foreign(ones({2}));
  std::string out, in;
  const auto g = graph::Graph::capture(default_device(), [&] {
    x.fill_(3);
    out = error_of([&] { to_dlpack(x); });
    in = error_of([&] { from_dlpack(foreign.give()); });
    y.copy_(x);
  });
  CHECK(out.find("[to_dlpack]") == 0);
  CHECK(in.find("[from_dlpack]") == 0);
  CHECK(foreign.deleted() == 0);
  CHECK(values_of(y) == std::vector<double>{3, 3});
}

}  // namespace
}  // namespace firn::testing
