// Files that PyTorch writes load into firn's modules: the names and shapes of its state dicts.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

using Floats = std::vector<float>;

/// A safetensors file, byte for byte, as the format has it: tensors after one another.
class File {
 public:
  File& f32(const std::string& name, const std::string& shape, const Floats& values) {
    return add(name, "F32", shape, values.data(), values.size() * sizeof(float));
  }
  File& i64(const std::string& name, const std::string& shape, std::int64_t value) {
    return add(name, "I64", shape, &value, sizeof value);
  }
  void write(const std::string& path) const {
    std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entries_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = header.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data_;
  }

 private:
  File& add(const std::string& name, const char* dtype, const std::string& shape, const void* bytes,
            std::size_t n) {
    const std::size_t begin = data_.size();
    data_.append(static_cast<const char*>(bytes), n);
    entries_ += (entries_.empty() ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"") + dtype +
                "\",\"shape\":" + shape + ",\"data_offsets\":[" + std::to_string(begin) + "," +
                std::to_string(data_.size()) + "]}";
    return *this;
  }
  std::string entries_, data_;
};

/// torch.nn.Module with conv = Conv2d(1, 2, 1), bn = BatchNorm2d(2), fc = Linear(2, 1).
struct Net : nn::Module {
  nn::Conv2d conv{1, 2, 1};
  nn::BatchNorm2d bn;
  nn::Linear fc{2, 1};
  explicit Net(nn::BatchNormMode mode) : bn(2, {.accumulation = mode}) {}
  FIRN_MEMBERS(conv, bn, fc)
  Tensor forward(const Tensor& x) override { return fc(global_avg_pool2d(bn(conv(x)))); }
};

File state_dict() {
  // What safetensors.torch.save_file(net.state_dict(), path) writes.
  File file;
  file.f32("bn.bias", "[2]", {0.5f, -1})
      .f32("bn.running_mean", "[2]", {1, 2})
      .f32("bn.running_var", "[2]", {4, 0.25f})
      .f32("bn.weight", "[2]", {2, 3})
      .f32("conv.bias", "[2]", {0, 1})
      .f32("conv.weight", "[2,1,1,1]", {2, -1})
      .f32("fc.bias", "[1]", {0.25f})
      .f32("fc.weight", "[1,2]", {1, -2})
      .i64("bn.num_batches_tracked", "[]", 7);
  return file;
}

}  // namespace

TEST_CASE("a state dict of PyTorch with BatchNorm loads by name, in either mode") {
  const firn::test::TempFolder folder;
  const std::string path = folder.file("torch.safetensors");
  state_dict().write(path);
  for (const auto mode : {nn::BatchNormMode::per_micro_batch, nn::BatchNormMode::per_step}) {
    Net net(mode);
    net(ones({2, 1, 2, 2})).sum().backward();  // what has been pooled is lost
    io::load_safetensors(path, net);
    CHECK(net.bn.num_batches_tracked.shape() == Shape{});
    CHECK(net.bn.num_batches_tracked.item() == 7);
    if (net.bn.pooled.defined()) CHECK(values_of(net.bn.pooled_count) == std::vector<double>{0});
    net.eval();
    // x = 3: conv (6, -2); bn (6-1)/2*2+.5 = 5.5, (-2-2)/.5*3-1 = -25; fc 5.5 + 50 + .25.
    CHECK(net(full({1, 1, 2, 2}, 3)).item() == Approx(55.75).epsilon(1e-4));  // eps is in the root
  }
}

TEST_CASE("a BatchNorm's state has PyTorch's names, and a mode of its own adds two") {
  const auto names = [](const nn::Module& m) {
    std::vector<std::string> all;
    for (const auto& t : io::state_of(m)) all.push_back(t.name);
    return all;
  };
  using Names = std::vector<std::string>;
  CHECK(names(nn::BatchNorm2d(2)) ==
        Names{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"});
  CHECK(names(nn::BatchNorm2d(2, {.accumulation = nn::BatchNormMode::per_step})).size() == 7);
  nn::BatchNorm1d from(2), to(2, {.accumulation = nn::BatchNormMode::per_step});
  from(ones({3, 2}));
  to.copy_from(from);
  CHECK(values_of(to.running_mean) == values_of(from.running_mean));
  from.copy_from(to);
}

TEST_CASE("a file that lacks what must be there is refused") {
  const firn::test::TempFolder folder;
  const std::string path = folder.file("partial.safetensors");
  File().f32("weight", "[2]", {1, 1}).f32("bias", "[2]", {0, 0}).write(path);
  nn::BatchNorm1d bn(2, {.accumulation = nn::BatchNormMode::per_step});
  const std::string text = error_of([&] { io::load_safetensors(path, bn); });
  CHECK(text.find("missing: running_mean, running_var, num_batches_tracked;") != std::string::npos);
}
