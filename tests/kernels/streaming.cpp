// Results that outgrow the caches are stored past them on the CPU: the same bits as those of parts
// that are small enough to be stored as usual.
#include "kernels/cpu/device/streaming.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "firn/autograd.h"
#include "firn/ops/ops.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = contiguous(a).to_vector<float>(), y = contiguous(b).to_vector<float>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

/// op of x in one go, and of parts of x along its first axis.
template <class Op>
void check_parts(const char* what, const Tensor& x, const Op& op) {
  INFO(what << " of " << describe(x));
  const Tensor whole = op(x);
  REQUIRE(kernels::cpu::FIRN_ISA::outgrows_caches(static_cast<std::int64_t>(whole.bytes())));
  const std::int64_t part = (x.size(0) + 2) / 3;
  for (std::int64_t at = 0; at < x.size(0); at += part) {
    const std::int64_t end = std::min(at + part, x.size(0));
    CHECK(same_bits(slice(whole, 0, at, end), op(slice(x, 0, at, end))));
  }
}

}  // namespace

TEST_CASE("stream_bytes copies from and to any address") {
  std::vector<unsigned char> from(400), to(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i % 251);
  for (std::int64_t bytes : {0, 1, 63, 64, 65, 128, 200}) {
    for (std::size_t at = 0; at < 130; at += 13) {
      std::fill(to.begin(), to.end(), 0xff);
      kernels::cpu::FIRN_ISA::stream_bytes(from.data() + 7, to.data() + at, bytes);
      kernels::cpu::FIRN_ISA::end_stream();
      const auto n = static_cast<std::size_t>(bytes);
      CHECK(std::equal(to.data() + at, to.data() + at + n, from.data() + 7));
      CHECK(std::all_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(at),
                        [](unsigned char c) { return c == 0xff; }));
      CHECK(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(at + n), to.end(),
                        [](unsigned char c) { return c == 0xff; }));
    }
  }
}

TEST_CASE("large results of elementwise operations have the bits of small ones", "[once]") {
  const Device cpu = Device::cpu();
  const Tensor x = randn({2801, 3001}, f32, cpu);  // the last line is not whole
  check_parts("relu", x, [](const Tensor& t) { return relu(t); });
  check_parts("add", x, [](const Tensor& t) { return t + t; });
  check_parts("exp", x, [](const Tensor& t) { return exp(t); });
  for (const DType dtype : {f16, bf16}) {
    const Tensor narrow = cast(randn({5801, 3001}, f32, cpu), dtype);
    check_parts("add", narrow, [](const Tensor& t) { return t + t; });
    check_parts("exp", narrow, [](const Tensor& t) { return exp(t); });
  }
  Tensor y = clone(x);
  relu_(y);  // in place
  CHECK(same_bits(y, relu(x)));
}

TEST_CASE("large transposed copies have the bits of small ones") {
  for (const Shape& shape : {Shape{2912, 2912}, Shape{2899, 2912}, Shape{2912, 2899}}) {
    const Tensor x = transpose(randn(shape, f32, Device::cpu()), 0, 1);
    check_parts("contiguous", x, [](const Tensor& t) { return contiguous(t); });
  }
}

TEST_CASE("large gradients of softmax have the bits of small ones") {
  const auto gradient = [](const Tensor& t) {
    Tensor x = t.detach().set_requires_grad();
    const Tensor y = softmax(x);
    backward(sum(y * y));
    return x.grad();
  };
  check_parts("softmax", randn({4099, 2048}, f32, Device::cpu()), gradient);
}

TEST_CASE("large results of layer norm have the bits of small ones") {
  for (const std::int64_t n : {2048, 2049}) {
    const Tensor x = randn({4099, n}, f32, Device::cpu());
    const Tensor w = randn({n}, f32, Device::cpu()), b = randn({n}, f32, Device::cpu());
    check_parts("layer_norm", x, [&](const Tensor& t) { return layer_norm(t, w, b); });
    check_parts("rms_norm", x, [&](const Tensor& t) { return rms_norm(t, w); });
  }
}

}  // namespace firn::testing
