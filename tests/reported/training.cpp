// Reports on training and data, each as the short program that shows it: public headers alone.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/onnx/export.h"
#include "firn/io/safetensors.h"
#include "firn/train/progress.h"
#include "firn/train/record.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using firn::test::contains;
using firn::test::TempFolder;
using firn::testing::error_of;

TEST_CASE("drop_last_seek: drop_last leaves out the same samples after a seek") {
  const data::Dataset set(
      32, [](std::int64_t i) { return data::Sample{full({}, static_cast<double>(i))}; });
  for (const std::int64_t from : {0, 8, 18, 31}) {
    data::Loader loader(set, {.batch = 8, .drop_last = true});
    loader.seek({0, from});
    std::int64_t follow = 0;
    for (const auto& b : loader.epoch(0)) follow += b.size();
    CHECK(follow == 32 - from);
  }
}

TEST_CASE("eps_min: an eps that f32 does not have is refused") {
  const Tensor w = ones({2}).set_requires_grad();
  const auto refused = [&] { optim::AdamW({w}, {.lr = 1e-3, .eps = 1e-39}); };
  CHECK_THAT(error_of(refused), contains("eps") && contains("hint"));
}

namespace {

optim::SGD complaining(const Tensor& w) { return optim::SGD({w}, {.lr = 0.1}, {.max_skips = 2}); }

bool complains_of_a_skip(optim::Optimizer& opt, const Tensor& w) {
  opt.backward(sum(w) * INFINITY);
  try {
    opt.step();
    return false;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

TEST_CASE("max_skips_resume: what was complained about is part of the state") {
  set_warning_handler([](const std::string&) {});
  const TempFolder folder;
  const Tensor w = ones({2}).set_requires_grad();
  auto opt = complaining(w);
  CHECK(!complains_of_a_skip(opt, w));
  io::save_run(folder.file("one"), {opt});
  CHECK(complains_of_a_skip(opt, w));
  io::save_run(folder.file("two"), {opt});

  const Tensor v = ones({2}).set_requires_grad();
  auto resumed = complaining(v);
  io::load_run(folder.file("two"), {resumed});
  resumed.backward(sum(v));
  CHECK(resumed.step().applied());

  io::load_run(folder.file("one"), {opt});
  CHECK(complains_of_a_skip(opt, w));
  set_warning_handler({});
}

TEST_CASE("onnx_min: a size that depends on the batch is not written as a number") {
  const TempFolder folder;
  const auto half = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0].slice(0, 0, in[0].size(0) / 2)};
  };
  const auto refused = [&] { io::export_onnx(folder.file("half"), half, {randn({2, 3})}); };
  CHECK_THAT(error_of(refused), contains("onnx") && contains("hint"));
}

TEST_CASE("st_dtype: a tensor of a foreign dtype leaves the others readable") {
  const TempFolder folder;
  const std::string name = folder.file("u64.safetensors");
  const std::string header = R"({"step":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},)"
                             R"("w":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]}})";
  {
    std::ofstream out(name, std::ios::binary);
    const std::uint64_t sizes[] = {header.size(), 7};
    const float w = 3;
    out.write(reinterpret_cast<const char*>(&sizes[0]), 8) << header;
    out.write(reinterpret_cast<const char*>(&sizes[1]), 8);
    out.write(reinterpret_cast<const char*>(&w), 4);
  }
  io::SafetensorsFile file(name);
  CHECK(file.read("w").item() == 3);
  CHECK_THAT(error_of([&] { file.read("step"); }), contains("step") && contains("U64"));
  nn::Linear layer(1, 1, {.bias = false});
  io::load_safetensors(name, layer, {.strict = false, .rename = {{"w", "weight"}, {"step", ""}}});
  CHECK(layer.weight.item() == 3);
}

TEST_CASE("small_findings: a NUL in a path, a learning rate beyond f32") {
  CHECK(!error_of([] { train::RunLog(std::string("nul\0x", 5)); }).empty());
  CHECK(!std::filesystem::exists("nul"));
  const Tensor w = ones({1}).set_requires_grad();
  optim::SGD opt({w}, {.lr = optim::exponential(1, 1e200)});
  for (int i = 0; i < 4; ++i) {
    opt.backward(sum(w));
    opt.step();
    CHECK(std::isfinite(w.item()));
  }
}

TEST_CASE("newcomer_short_pass: a look at the first batch, or a loop that is left") {
  data::Loader loader(data::TensorDataset({arange(10, f32)}), {.batch = 4});
  const auto samples = [&] {
    std::int64_t n = 0;
    for (const auto& b : loader) n += b.size();
    return n;
  };
  CHECK((*loader.begin()).size() == 4);
  CHECK(samples() == 10);
  for (const auto& b : loader) {
    CHECK(b.size() == 4);
    break;
  }
  CHECK(samples() == 10);
}

TEST_CASE("newcomer_tbptt: a state that is not detached is named in the error") {
  nn::LSTM lstm(4, 8);
  optim::SGD opt(lstm.parameters(), {.lr = 0.1});
  Tensor h, c;
  const auto chunk = [&] {
    const auto [y, hn, cn] = lstm(randn({3, 2, 4}), nn::RecurrentInput{.h = h, .c = c});
    opt.backward(mse_loss(y, zeros(y.shape())), {.retain_graph = true});
    opt.step();
    h = hn;
    c = cn;
  };
  chunk();
  CHECK_THAT(error_of(chunk), contains("detach()"));
}

namespace {

struct Block : nn::Module {
  nn::Linear layer{8, 8};
  FIRN_MEMBERS(layer)
  Tensor forward(const Tensor& x) override { return x + layer(x); }
};

struct Net : nn::Module {
  std::vector<Block> blocks = std::vector<Block>(3, Block());
  FIRN_MEMBERS(blocks)
};

}  // namespace

TEST_CASE("newcomer_copies: an optimizer warns of modules that are one module's copies") {
  std::string warned;
  set_warning_handler([&](const std::string& text) { warned += text; });
  const Net net;
  const optim::SGD opt(net.parameters(), {.lr = 0.1});
  set_warning_handler({});
  CHECK_THAT(warned, contains("blocks") && contains("share"));
}
