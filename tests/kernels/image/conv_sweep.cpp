// Small convolutions of every kind on memory full of NaNs: what oneDNN, or firn, reads without
// having written it shows in the results. For each instruction set, in a process of its own.
// FIRN_SWEEP_ALL=1 tries a hundred times as many shapes, which takes minutes.
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "kernels/settings/isa.h"
#include "runtime/memory/dirty_memory.h"
#include "support/catch.h"
#include "support/in_child.h"
#include "support/values.h"

using namespace firn;
using firn::testing::in_child;
using firn::testing::Rng;
using firn::testing::values_of;

namespace {

/// Numbers per axis: depth, height and width. The first `3 - dims` are not used.
using Numbers = std::array<std::int64_t, 3>;

struct Small {
  int dims;
  bool transposed;
  std::int64_t n, c, k, groups;
  Numbers in, taps, stride, padding, dilation, out;

  std::string name() const {
    std::string s = (transposed ? "transposed " : "") + std::to_string(dims) + "-D n " +
                    std::to_string(n) + " c " + std::to_string(c) + " k " + std::to_string(k) +
                    " groups " + std::to_string(groups);
    for (std::size_t a = static_cast<std::size_t>(3 - dims); a < 3; ++a)
      s += " [in " + std::to_string(in[a]) + " taps " + std::to_string(taps[a]) + " stride " +
           std::to_string(stride[a]) + " padding " + std::to_string(padding[a]) + " dilation " +
           std::to_string(dilation[a]) + " out " + std::to_string(out[a]) + "]";
    return s;
  }
};

/// Kernels of 1 to 5 taps, strides of 1 to 4, padding up to the kernel's taps, 1 to 4 outputs.
/// Half of the shapes have the same numbers along all axes, as most layers have.
Small any_shape(Rng& rng) {
  constexpr std::array<std::array<std::int64_t, 3>, 9> kChannels = {{{16, 16, 1},
                                                                     {3, 16, 1},
                                                                     {5, 7, 1},
                                                                     {32, 16, 1},
                                                                     {1, 8, 1},
                                                                     {8, 8, 8},
                                                                     {8, 24, 2},
                                                                     {40, 40, 1},
                                                                     {16, 16, 16}}};
  const auto& channels = kChannels[static_cast<std::size_t>(rng.below(9))];
  Small s{1 + static_cast<int>(rng.below(3)),
          rng.below(4) == 0,
          1 + rng.below(2),
          channels[0],
          channels[1],
          channels[2],
          {},
          {},
          {},
          {},
          {},
          {}};
  const bool same = rng.below(2) == 0;
  for (std::size_t a = static_cast<std::size_t>(3 - s.dims); a < 3; ++a) {
    const auto first = static_cast<std::size_t>(3 - s.dims);
    do {
      s.taps[a] = 1 + rng.below(5);
      s.stride[a] = 1 + rng.below(4);
      s.padding[a] = rng.below(s.taps[a] + 1);
      s.dilation[a] = 1 + rng.below(4) / 3;
      if (same && a != first) {
        s.taps[a] = s.taps[first];
        s.stride[a] = s.stride[first];
        s.padding[a] = s.padding[first];
        s.dilation[a] = s.dilation[first];
      }
      s.out[a] = 1 + rng.below(4);
      s.in[a] = (s.out[a] - 1) * s.stride[a] + s.dilation[a] * (s.taps[a] - 1) + 1 -
                2 * s.padding[a] + rng.below(s.stride[a]);
    } while (s.in[a] < 1 || (same && a != first && s.in[a] > 14));
  }
  return s;
}

/// Those that oneDNN 2.6 or 3.7 computes wrong, crashes for, or reads garbage for.
std::vector<Small> known_shapes() {
  const auto equal = [](int dims, std::int64_t n, std::int64_t c, std::int64_t k,
                        std::int64_t groups, std::int64_t in, std::int64_t taps,
                        std::int64_t stride, std::int64_t padding) {
    const std::int64_t out = (in + 2 * padding - taps) / stride + 1;
    const auto all = [](std::int64_t v) { return Numbers{v, v, v}; };
    return Small{dims,        false,        n,      c,       k, groups, all(in), all(taps),
                 all(stride), all(padding), all(1), all(out)};
  };
  std::vector<Small> shapes{
      equal(3, 2, 16, 16, 1, 3, 3, 2, 1), equal(3, 2, 16, 16, 1, 2, 2, 2, 1),
      equal(3, 1, 32, 16, 1, 3, 4, 3, 2), equal(3, 1, 16, 16, 1, 1, 5, 1, 2),
      equal(3, 2, 5, 7, 1, 1, 3, 3, 1),   equal(3, 2, 32, 16, 1, 2, 4, 1, 1),
      equal(2, 2, 16, 16, 1, 1, 3, 3, 1), equal(2, 2, 3, 16, 1, 3, 3, 4, 1),
      equal(2, 1, 8, 8, 8, 2, 2, 3, 1),   equal(2, 2, 1, 8, 1, 2, 3, 4, 1),
      equal(1, 1, 8, 24, 2, 1, 2, 2, 1),  equal(1, 1, 5, 7, 1, 3, 2, 4, 1),
      equal(1, 2, 8, 8, 8, 1, 3, 2, 2),   equal(1, 1, 1, 8, 1, 3, 3, 4, 0),
      equal(2, 1, 16, 16, 1, 4, 4, 4, 0), equal(1, 1, 40, 40, 1, 1, 1, 2, 1),
      equal(3, 1, 1, 8, 1, 1, 3, 4, 1),
  };
  // These were wrong in f32 as well, with any number of channels.
  shapes.push_back(
      {3, false, 1, 40, 40, 1, {2, 4, 1}, {5, 5, 3}, {2, 2, 4}, {4, 1, 1}, {1, 1, 1}, {3, 1, 1}});
  // oneDNN takes another way for many channels, and gathers pixels under kernels of one tap.
  shapes.push_back(
      {2, false, 2, 128, 16, 1, {1, 1, 3}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}, {1, 1, 3}});
  shapes.push_back(
      {2, false, 2, 1, 8, 1, {1, 4, 9}, {1, 1, 1}, {1, 1, 3}, {0, 0, 0}, {1, 1, 1}, {1, 4, 3}});
  const std::size_t count = shapes.size();
  for (std::size_t i = 0; i < count; ++i) {  // transposed, where the result is not empty
    Small s = shapes[i];
    s.transposed = true;
    shapes.push_back(s);
  }
  return shapes;
}

Size3 size3(const Numbers& v) { return {v[0], v[1], v[2]}; }
Size2 size2(const Numbers& v) { return {v[1], v[2]}; }

Tensor convolve(const Small& s, const Tensor& x, const Tensor& w) {
  if (s.transposed) {
    if (s.dims == 1)
      return conv_transpose1d(x, w, {},
                              {.stride = s.stride[2],
                               .padding = s.padding[2],
                               .dilation = s.dilation[2],
                               .groups = s.groups});
    if (s.dims == 2)
      return conv_transpose2d(x, w, {},
                              {.stride = size2(s.stride),
                               .padding = size2(s.padding),
                               .dilation = size2(s.dilation),
                               .groups = s.groups});
    return conv_transpose3d(x, w, {},
                            {.stride = size3(s.stride),
                             .padding = size3(s.padding),
                             .dilation = size3(s.dilation),
                             .groups = s.groups});
  }
  if (s.dims == 1)
    return conv1d(x, w, {},
                  {.stride = s.stride[2],
                   .padding = s.padding[2],
                   .dilation = s.dilation[2],
                   .groups = s.groups});
  if (s.dims == 2)
    return conv2d(x, w, {},
                  {.stride = size2(s.stride),
                   .padding = {s.padding[1], s.padding[2]},
                   .dilation = size2(s.dilation),
                   .groups = s.groups});
  return conv3d(x, w, {},
                {.stride = size3(s.stride),
                 .padding = {s.padding[0], s.padding[1], s.padding[2]},
                 .dilation = size3(s.dilation),
                 .groups = s.groups});
}

/// Small whole numbers, of which f32 sums are exact.
Tensor whole(const Shape& shape, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(shape.product()));
  for (double& v : values) v = static_cast<double>(rng.below(7)) - 3;
  return tensor<double>(values, shape);
}

/// The result and both gradients. f64 goes through firn's own code, which uses no oneDNN.
std::array<Tensor, 3> all_of(const Small& s, DType dtype, const Tensor& x64, const Tensor& w64,
                             std::uint64_t seed) {
  const Tensor x = x64.to(dtype).clone().set_requires_grad();
  const Tensor w = w64.to(dtype).clone().set_requires_grad();
  const Tensor y = convolve(s, x, w);
  Rng rng(seed);
  backward(y, {.initial_gradient = whole(y.shape(), rng).to(dtype)});
  return {y.detach(), x.grad(), w.grad()};
}

/// What is wrong with a shape, or "". Exact sums are rounded once, so results are equal.
std::string fault_of(const Small& s, std::uint64_t seed) {
  Rng rng(seed);
  const auto first = static_cast<std::size_t>(3 - s.dims);
  Shape in{s.n, s.transposed ? s.k : s.c}, kernel{s.k, s.c / s.groups};
  for (std::size_t a = first; a < 3; ++a) {
    const std::int64_t result =
        (s.out[a] - 1) * s.stride[a] - 2 * s.padding[a] + s.dilation[a] * (s.taps[a] - 1) + 1;
    if (s.transposed && result < 1) return "";
    in.push_back(s.transposed ? s.out[a] : s.in[a]);
    kernel.push_back(s.taps[a]);
  }
  const Tensor x = whole(in, rng), w = whole(kernel, rng);
  const auto want = all_of(s, f64, x, w, seed);
  constexpr std::array<const char*, 3> kWhat = {"the result", "the gradient of the input",
                                                "the gradient of the weight"};
  for (const DType dtype : {f32, bf16, f16}) {
    const auto got = all_of(s, dtype, x, w, seed);
    for (std::size_t i = 0; i < 3; ++i)
      if (values_of(got[i]) != values_of(want[i].to(dtype)))
        return s.name() + " " + to_string(dtype) + ": " + kWhat[i];
  }
  return "";
}

/// The first fault among the known shapes and `count` others, or "none".
std::string sweep(int count) {
  set_num_threads(1);
  const DirtyMemory dirty;
  std::uint64_t seed = 1;
  for (const Small& s : known_shapes())
    if (const std::string fault = fault_of(s, ++seed); !fault.empty()) return fault;
  Rng rng(7);
  for (int i = 0; i < count; ++i)
    if (const std::string fault = fault_of(any_shape(rng), ++seed); !fault.empty()) return fault;
  return "none";
}

}  // namespace

TEST_CASE("convolutions of small maps read nothing that nobody wrote, with each instruction set",
          "[kernels][conv][host]") {
  using kernels::cpu::Isa;
  const bool all = std::getenv("FIRN_SWEEP_ALL") != nullptr;
  for (const Isa isa : {Isa::base, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx_bf16}) {
    if (isa > kernels::cpu::machine_isa()) continue;
    const bool most = isa == kernels::cpu::machine_isa();
    const char* const name = kernels::cpu::name_of(isa);
    CAPTURE(name);
    CHECK(in_child("FIRN_CPU_ISA", name,
                   [&] { return sweep((most ? 500 : 100) * (all ? 100 : 1)); }) == "none");
  }
}
