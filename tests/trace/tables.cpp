// Spans and the tables made of them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "io/bits.h"
#include "trace/profiled.h"

using namespace firn;
using namespace firn::testing;

namespace {

/// Two epochs; returns the bits of the result.
std::string train_net(std::int64_t width = 32) {
  manual_seed(7);
  ProfiledNet net(width);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2, .clip_norm = 1});
  data::Loader loader(profiled_rows(64), {.batch = 8, .shuffle = true, .device = default_device()});
  std::string bits;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      opt.backward(cross_entropy(net(batch[0]), batch[1]));
      opt.step();
    }
  for (const Tensor& p : net.parameters()) bits += bits_of(p);
  return bits;
}

}  // namespace

TEST_CASE("trace: spans nest, and their own times add up to the wall time") {
  train_net();  // what is made once is there
  const auto start = std::chrono::steady_clock::now();
  Profile profile;
  {
    const Range all("all");
    train_net(256);
  }
  profile.stop();
  const double measured =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(profile.seconds() <= measured);
  check_nesting(profile.log());
  check_totals(profile.log());
  for (const ProfileBy by : {ProfileBy::operation, ProfileBy::module, ProfileBy::kernel}) {
    double sum = 0;
    for (const ProfileRow& r : profile.rows(by)) sum += r.seconds;
    CHECK(sum == Approx(profile.seconds()).epsilon(1e-9));
  }
  const ProfileRow& all = row(profile.rows(ProfileBy::phase), "all");
  CHECK(all.seconds == Approx(profile.seconds()).epsilon(0.02));
}

TEST_CASE("trace: a profile changes no bit") {
  const std::string plain = train_net();
  Profile profile;
  CHECK(train_net() == plain);
}

TEST_CASE("trace: operations have their calls, products, bytes and direction") {
  nn::Linear layer(24, 40);
  const Tensor x = randn({16, 24});
  Profile profile;
  for (int i = 0; i < 3; ++i) backward(sum(gelu(layer(x))));
  profile.stop();
  const auto rows = profile.rows();
  const ProfileRow& forward = row(rows, "linear");
  CHECK(forward.calls == 3);
  CHECK(forward.flops == 3 * 2.0 * 16 * 24 * 40);
  // x, the weight, the bias and y at least.
  CHECK(forward.bytes >= 3 * 4.0 * (16 * 24 + 24 * 40 + 40 + 16 * 40));
  CHECK(forward.seconds > 0);
  const ProfileRow& gradient = row(rows, "linear", true);
  CHECK(gradient.calls == 3);
  CHECK(gradient.flops == 3 * 2.0 * 16 * 24 * 40);  // of the weight; x needs none
  CHECK(row(rows, "gelu").calls == 3);
  CHECK(row(rows, "gelu").flops == 0);
  CHECK(row(rows, "gelu").bytes == 3 * 2 * 4.0 * 16 * 40);
  CHECK(row(rows, "gelu", true).calls == 3);
  CHECK(std::isnan(row(rows, "(backward)").of_peak));
  for (const ProfileRow& r : profile.rows(ProfileBy::kernel))
    if (r.name != "(no kernel)" && r.name != "(outside of spans)") {
      INFO(r.name << " " << r.detail);
      CHECK(r.calls > 0);
      CHECK(r.detail.find("f32") != std::string::npos);
    }
}

TEST_CASE("trace: what makes or fills a tensor is an operation of its own") {
  Profile profile;
  const Tensor x = randn({64, 8});
  full({100}, 1);
  copy_(x, ones_like(x));
  (void)x.to(f64);
  (void)index_select(x, 0, tensor({std::int64_t{3}, std::int64_t{1}}));
  profile.stop();
  const auto rows = profile.rows();
  CHECK(row(rows, "cast").bytes == (4 + 8) * 64 * 8);
  CHECK(row(rows, "randn").calls == 1);
  CHECK(row(rows, "full").bytes == 4 * 100);
  CHECK(row(rows, "copy_").bytes == 2 * 4 * 64 * 8);
  CHECK(row(rows, "ones_like").calls == 1);
  // Two rows are read and written, and two indices are read.
  CHECK(row(rows, "index_select").bytes == 2 * 2 * 4 * 8 + 2 * 8);
}

TEST_CASE("trace: convolutions and attention count their products") {
  nn::Conv2d conv(3, 8, 3, {.padding = 1});
  const Tensor image = randn({2, 3, 10, 12}).set_requires_grad();
  const Tensor q = randn({2, 3, 6, 4}).set_requires_grad();
  Profile profile;
  backward(sum(conv(image)));
  backward(sum(attention(q, q, q, {.causal = true})));
  profile.stop();
  const auto rows = profile.rows();
  const double products = 2.0 * (2 * 8 * 10 * 12) * (3 * 3 * 3);
  CHECK(row(rows, "conv2d").flops == products);
  CHECK(row(rows, "conv2d", true).flops == 2 * products);
  const double pairs = 2 * 3 * (6 * 7 / 2);
  CHECK(row(rows, "attention").flops == 2 * pairs * (4 + 4));
  CHECK(row(rows, "attention", true).flops == 2 * pairs * (3 * 4 + 2 * 4));
}

TEST_CASE("trace: modules have their path, their calls and their backward pass") {
  Profile profile;
  train_net();
  profile.stop();
  const auto rows = profile.rows(ProfileBy::module);
  CHECK(row(rows, "ProfiledNet").calls == 16);
  CHECK(row(rows, "ProfiledNet.in").calls == 16);
  CHECK(row(rows, "ProfiledNet.in").flops == 16 * 2.0 * 8 * 8 * 32);
  CHECK(row(rows, "ProfiledNet.in", true).flops == 16 * 2.0 * 8 * 8 * 32);
  CHECK(row(rows, "ProfiledNet.out", true).flops == 2 * 16 * 2.0 * 8 * 32 * 4);
  CHECK(row(rows, "ProfiledNet.out", true).seconds > 0);
  const auto phases = profile.rows(ProfileBy::phase);
  CHECK(row(phases, "backward").calls == 16);
  CHECK(row(phases, "optimizer step").calls == 8);
  CHECK(row(phases, "recompute").calls == 16);
  CHECK(row(phases, "next batch").calls == 18);  // an epoch ends with a question
  CHECK(row(phases, "make batch").calls == 16);
}

TEST_CASE("trace: the share of the peak is the least time by the measured one", "[host]") {
  const Tensor a = randn({256, 256}), b = randn({256, 256});
  Profile profile;
  for (int i = 0; i < 20; ++i) (void)matmul(a, b);
  profile.stop();
  const MachinePeak peak = machine_peak(Device::cpu(), f32);
  CHECK(peak.flops > 1e8);
  CHECK(peak.bytes_per_second > 1e8);
  CHECK(machine_peak(Device::cpu(), f32).flops == peak.flops);
  const ProfileRow kernel = row(profile.rows(ProfileBy::kernel), "gemm");
  const double least = std::max(kernel.flops / peak.flops, kernel.bytes / peak.bytes_per_second);
  CHECK(kernel.of_peak == Approx(least / kernel.seconds));
  CHECK_THROWS_AS(machine_peak(Device::cpu(), i64), Error);
}

TEST_CASE("trace: spans of failed operations end, and later ones nest") {
  const Tensor x = randn({4, 4});
  Profile profile;
  {
    const Range range("range");
    CHECK_THROWS_AS(matmul(x, randn({3, 3})), Error);
    nn::Linear layer(5, 2);
    CHECK_THROWS_AS(layer(x), Error);
    (void)matmul(x, x);
  }
  profile.stop();
  check_nesting(profile.log());
  check_totals(profile.log());
  CHECK(row(profile.rows(), "matmul").calls == 1);
  CHECK(row(profile.rows(ProfileBy::phase), "range").calls == 1);
}

TEST_CASE("trace: only the newest totals grow when no more spans are kept") {
  Profile profile({.max_spans = 5});
  const Tensor x = randn({4, 4});
  for (int i = 0; i < 100; ++i) (void)(x + x);
  profile.stop();
  CHECK(profile.log().spans.size() == 5);
  CHECK(profile.log().left_out > 150);
  CHECK(row(profile.rows(), "add").calls == 100);
  CHECK(profile.table().find("are in no trace") != std::string::npos);
  Profile none({.max_spans = 0});
  (void)(x + x);
  none.stop();
  CHECK(none.log().spans.empty());
  CHECK(row(none.rows(), "add").calls == 1);
}

TEST_CASE("trace: what is planned and not run is in no table") {
  const Tensor x = randn({64, 64});
  Profile profile;
  plan_memory([&] { (void)matmul(x, x); });
  profile.stop();
  CHECK(find_row(profile.rows(), "matmul") == nullptr);
}

TEST_CASE("trace: the text has the rows, the others in one, and the wall time") {
  Profile profile;
  train_net();
  profile.stop();
  const std::string text = profile.table(ProfileBy::operation, 3);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(lines == 1 + 3 + 1 + 1);
  CHECK(text.starts_with("operation "));
  CHECK(text.find(" more ") != std::string::npos);
  CHECK(text.find("wall time ") != std::string::npos);
  const std::string all = profile.table(ProfileBy::module, 1000);
  CHECK(all.find("ProfiledNet.hidden.up backward") != std::string::npos);
  CHECK(all.find(" more ") == std::string::npos);
  CHECK_THROWS_WITH(profile.table(ProfileBy::operation, 0), Catch::Contains("0 rows"));
}

TEST_CASE("trace: one profile at a time, and questions when it has ended") {
  Profile profile;
  CHECK(profile.running());
  CHECK_THROWS_WITH(Profile(), Catch::Contains("one at a time"));
  CHECK_THROWS_WITH(profile.rows(), Catch::Contains("stop()"));
  CHECK_THROWS_WITH(profile.seconds(), Catch::Contains("stop()"));
  profile.stop();
  profile.stop();
  CHECK_FALSE(profile.running());
  CHECK(profile.rows(ProfileBy::phase).empty());
  Profile second;  // the first one's place is free
  CHECK_THROWS_WITH(Profile({.max_spans = -1}), Catch::Contains("max_spans is -1"));
  second.stop();
  if (!built_with_cuda()) CHECK_THROWS_WITH(Profile({.nvtx = true}), Catch::Contains("NVTX"));
}

TEST_CASE("trace: spans that begin or end in another profile are left out") {
  auto first = std::make_unique<Profile>();
  const Tensor x = randn({4, 4});
  {
    const Range across("across");
    (void)(x + x);
    first->stop();
    const Profile second;
    (void)(x * x);
  }
  CHECK(find_row(first->rows(ProfileBy::phase), "across") == nullptr);
  CHECK(row(first->rows(), "add").calls == 1);
  Profile third;
  (void)(x - x);
  third.stop();
  CHECK(row(third.rows(), "sub").calls == 1);
  CHECK(find_row(third.rows(), "mul") == nullptr);
  CHECK(find_row(third.rows(ProfileBy::phase), "across") == nullptr);
}

TEST_CASE("trace: kernels on a device are measured there", "[gpu]") {
  Profile profile;
  train_net();
  profile.stop();
  check_nesting(profile.log());
  double device = 0;
  for (const ProfileRow& r : profile.rows()) device += r.device_seconds;
  CHECK(device > 0);
  std::size_t measured = 0;
  for (const runtime::SpanRecord& s : profile.log().spans)
    if (s.kind == runtime::SpanKind::kernel && s.device.is_cuda()) {
      INFO(s.name);
      CHECK(s.device_seconds >= 0);
      CHECK(s.device_start >= 0);
      ++measured;
    }
  CHECK(measured > 100);
  CHECK(profile.table().find("device") != std::string::npos);
}
