// Loading a file into a module in part: prefixes, other names, what is missing and what is left.
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

using Names = std::vector<std::string>;

struct Net : nn::Module {
  nn::Linear body{3, 4}, head{4, 2};
  FIRN_MEMBERS(body, head)
};

/// Embedding and output share a weight, as in GPT-2.
struct Tied : nn::Module {
  nn::Linear in{3, 2, {.bias = false}}, out{3, 2, {.bias = false}};
  Tied() { out.weight = in.weight; }
  FIRN_MEMBERS(in, out)
};

std::vector<nn::NamedTensor> filled_state(const nn::Module& m, double value) {
  auto state = io::state_of(m);
  for (auto& [name, t] : state) t = full(t.shape(), value, t.dtype());
  return state;
}

std::vector<double> all_values(const nn::Module& m) {
  std::vector<double> all;
  for (const auto& [name, t] : io::state_of(m))
    for (const double v : values_of(t)) all.push_back(v);
  return all;
}

}  // namespace

TEST_CASE("load: strict names all differences in one error, and writes nothing") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  io::save_safetensors(path, std::vector<nn::NamedTensor>{{"body.weight", zeros({4, 4})},
                                                          {"head.weight", zeros({2, 4}, i64)},
                                                          {"body.bias", zeros({4})},
                                                          {"tail", zeros({1})},
                                                          {"odd\n", zeros({1})}});
  Net net;
  const auto before = all_values(net);
  const std::string text = error_of([&] { io::load_safetensors(path, net); });
  CHECK_THAT(text, contains("missing: head.bias; left over: \"odd\\x0a\", tail; mismatched: "
                            "\"body.weight\" is [4, 4], the module's is [4, 3], \"head.weight\" is "
                            "i64, the module's is f32"));
  CHECK(all_values(net) == before);
}

TEST_CASE("load: a saved run is recognised, and the error says how to load the model alone") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  Net saved, net;
  optim::SGD opt(saved.parameters(), {.lr = 1});
  io::save_run(path, {saved, opt});
  const std::string text = error_of([&] { io::load_safetensors(path, net); });
  for (const char* part : {"a saved run", "{.strict = false}", ".prefix", "load_run()"})
    CHECK_THAT(text, contains(part));
  io::load_safetensors(path, net, {.strict = false});
  CHECK(all_values(net) == all_values(saved));
  CHECK_THAT(error_of([&] { io::load_run(path, {net}); }), contains("load_safetensors()"));
}

TEST_CASE("load: without strict the report lists what did not fit, and the rest is loaded") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  io::save_safetensors(path, std::vector<nn::NamedTensor>{{"body.weight", full({4, 3}, 2)},
                                                          {"head.weight", full({5, 4}, 2)},
                                                          {"body.bias", full({4}, 2, f64)},
                                                          {"tail", zeros({1})}});
  for (const bool map : {false, true}) {
    Net net;
    const auto head = values_of(net.head.weight);
    const auto report = io::load_safetensors(path, net, {.strict = false, .map = map});
    CHECK(report.loaded == Names{"body.weight", "body.bias"});
    CHECK(report.missing == Names{"head.bias"});
    CHECK(report.unexpected == Names{"tail"});
    REQUIRE(report.mismatched.size() == 1);
    CHECK(report.mismatched[0].name == "head.weight");
    CHECK(report.mismatched[0].what == "is [5, 4], the module's is [2, 4]");
    CHECK_FALSE(report.complete());
    CHECK(values_of(net.body.weight) == std::vector<double>(12, 2));
    CHECK(values_of(net.body.bias) == std::vector<double>(4, 2));
    CHECK(values_of(net.head.weight) == head);
    net.body.weight.set_requires_grad();  // the module's own memory, not the file's
    CHECK(net.body.weight.storage()->owner() == Owner::weights);
  }
}

TEST_CASE("load: prefix, rename and only") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  io::save_safetensors(path, std::vector<nn::NamedTensor>{{"model.fc.weight", full({4, 3}, 3)},
                                                          {"model.fc.bias", full({4}, 3)},
                                                          {"model.head.weight", full({2, 4}, 3)},
                                                          {"model.head.bias", full({2}, 3)},
                                                          {"model.cache", zeros({9})},
                                                          {"lm.weight", zeros({9})}});
  const auto to_body = [](const std::string& name) {
    if (name == "cache") return std::string();
    return name.starts_with("fc.") ? "body." + name.substr(3) : name;
  };
  Net net;
  const auto report = io::load_safetensors(path, net, {.prefix = "model.", .rename = to_body});
  CHECK(report.complete());
  CHECK(report.loaded == Names{"body.weight", "body.bias", "head.weight", "head.bias"});
  CHECK(all_values(net) == std::vector<double>(12 + 4 + 8 + 2, 3));

  Net listed;
  io::load_safetensors(path, listed,
                       {.prefix = "model.",
                        .rename = {{"fc.weight", "body.weight"}, {"fc.bias", "body.bias"}},
                        .only = [](const std::string& n) { return n.starts_with("body."); }});
  CHECK(values_of(listed.body.bias) == std::vector<double>(4, 3));
  CHECK(values_of(listed.head.bias) != std::vector<double>(2, 3));

  CHECK_THAT(
      error_of([&] { io::load_safetensors(path, net, {.strict = false, .prefix = "mod3l."}); }),
      contains("no name begins with \"mod3l.\"; the first is \"model.fc.weight\""));
  CHECK_THAT(error_of([&] {
               io::load_safetensors(
                   path, net,
                   {.strict = false, .prefix = "model.", .rename = {{"head.bias", "fc.bias"}}});
             }),
             contains("\"model.fc.bias\" and \"model.head.bias\" both become \"fc.bias\""));
}

TEST_CASE(
    "load: a value that does not fit is refused even if not strict, before anything is written") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  auto state = filled_state(Net(), 1);
  state[3].tensor = full({2}, 70000);
  io::save_safetensors(path, state);
  Net net;
  net.to(f16);
  const auto before = all_values(net);
  CHECK_THAT(error_of([&] { io::load_safetensors(path, net, {.strict = false}); }),
             contains("\"head.bias\": element 0 is 70000, which f16 cannot hold"));
  CHECK(all_values(net) == before);
}

TEST_CASE("load: a tied tensor has any of its names in the file, or equal ones") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  const auto load = [&](const std::vector<nn::NamedTensor>& tensors, bool strict, Tied& net) {
    io::save_safetensors(path, tensors);
    return io::load_safetensors(path, net, {.strict = strict});
  };
  const Tensor one = full({2, 3}, 1), two = full({2, 3}, 2);
  for (const auto& tensors :
       std::vector<std::vector<nn::NamedTensor>>{{{"in.weight", one}},
                                                 {{"out.weight", one}},
                                                 {{"in.weight", one}, {"out.weight", one}}}) {
    Tied net;
    const auto report = load(tensors, true, net);
    CHECK(report.loaded.size() == 1);
    CHECK(values_of(net.out.weight) == std::vector<double>(6, 1));
    CHECK(net.in.weight.impl() == net.out.weight.impl());
  }
  Tied net;
  CHECK_THAT(error_of([&] {
               load({{"in.weight", one}, {"out.weight", two}}, true, net);
             }),
             contains("\"out.weight\" differs from \"in.weight\", to which the module ties it"));
  const auto report = load({{"in.weight", one}, {"out.weight", two}}, false, net);
  CHECK(report.mismatched.size() == 1);
  CHECK(values_of(net.in.weight) == std::vector<double>(6, 1));
  CHECK_THAT(error_of([&] {
               load({{"other", one}}, true, net);
             }),
             contains("missing: in.weight; left over: other"));
}

TEST_CASE("load: an optimizer notices weights that were loaded in part") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  io::save_safetensors(path, std::vector<nn::NamedTensor>{{"body.bias", full({4}, 5)}});
  Net net;
  net.to(bf16);
  optim::SGD opt(net.parameters(), {.lr = 0.0});
  io::load_safetensors(path, net, {.strict = false});
  opt.backward(mse_loss(net.head(net.body(ones({1, 3}, bf16))), zeros({1, 2}, bf16)));
  opt.step();
  CHECK(values_of(net.body.bias) == std::vector<double>(4, 5));
}

TEST_CASE("load: BatchNorm's counter is a scalar of i64 in what is saved and what is loaded") {
  const TempFolder folder;
  const std::string path = folder.file("bn");
  nn::BatchNorm1d bn(2);
  for (int i = 0; i < 3; ++i) bn(randn({4, 2}));
  io::save_safetensors(path, io::state_of(bn));
  const io::SafetensorsFile file(path);
  CHECK(file.shape("num_batches_tracked") == Shape{});
  CHECK(file.dtype("num_batches_tracked") == i64);
  CHECK(file.read("num_batches_tracked").item() == 3);
  nn::BatchNorm1d other(2);
  io::load_safetensors(path, other);
  CHECK(other.num_batches_tracked.item() == 3);
  // One element in an axis of its own is another shape.
  auto state = io::state_of(bn);
  for (auto& [name, t] : state)
    if (name == "num_batches_tracked") t = tensor<std::int64_t>({9});
  io::save_safetensors(path, state);
  CHECK_THAT(error_of([&] { io::load_safetensors(path, other); }),
             contains("mismatched: \"num_batches_tracked\" is [1], the module's is []"));
  // A file of the time before there was a counter.
  std::erase_if(state, [](const nn::NamedTensor& t) { return t.name == "num_batches_tracked"; });
  io::save_safetensors(path, state);
  CHECK(io::load_safetensors(path, other, {.strict = false}).missing ==
        Names{"num_batches_tracked"});
  CHECK(other.num_batches_tracked.item() == 3);
}

TEST_CASE("load: what a cycle has pooled goes with the layer's statistics, and only with them") {
  const TempFolder folder;
  const std::string path = folder.file("bn"), none = folder.file("none");
  nn::BatchNorm1d from(2);
  io::save_safetensors(path, io::state_of(from));
  io::save_safetensors(none, std::vector<nn::NamedTensor>{{"x", zeros({1})}});
  nn::BatchNorm1d bn(2, {.accumulation = nn::BatchNormMode::per_step});
  REQUIRE(bn.pooled_count.defined());
  bn.pooled_count.fill_(4);
  CHECK(io::load_safetensors(none, bn, {.strict = false}).loaded.empty());
  CHECK(values_of(bn.pooled_count)[0] == 4);
  io::load_safetensors(path, bn, {.strict = false});
  CHECK(values_of(bn.pooled_count)[0] == 0);
}
