// The parts that threads compute of a convolution: that they are all of it, and read what they
// need.
#include "kernels/cpu/conv/blocks.h"

#include <random>
#include <vector>

#include "support/catch.h"

namespace firn::testing {
namespace {

using kernels::ConvPass;
using kernels::ConvSizes;
using kernels::cpu::ConvBlock;
using kernels::cpu::ConvBlocks;

/// Slices of x that result `o` reads, of a block or of the whole.
std::vector<std::int64_t> reads(const ConvSizes& z, std::int64_t o, std::int64_t first) {
  std::vector<std::int64_t> out;
  const kernels::ConvDepth& g = z.geometry.depth;
  for (std::int64_t tap = 0; tap < z.t; ++tap) {
    const std::int64_t at = o * g.stride - g.before + tap * g.dilation;
    if (at >= 0 && at < z.d) out.push_back(at + first);
  }
  return out;
}

ConvSizes random_sizes(std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  ConvSizes z{};
  z.volumes = true;
  z.n = up_to(12);
  z.c = z.k = 16;
  z.h = z.w = z.p = z.q = up_to(20);
  z.r = z.s = 1;
  z.t = up_to(4);
  kernels::ConvDepth& g = z.geometry.depth;
  g = {.stride = up_to(3), .before = up_to(4) - 1, .after = up_to(4) - 1, .dilation = up_to(3)};
  z.d = up_to(20) + g.dilation * (z.t - 1);
  z.o = (z.d + g.before + g.after - g.dilation * (z.t - 1) - 1) / g.stride + 1;
  return z;
}

}  // namespace

TEST_CASE("blocks of a convolution of volumes are all of it, each with what it reads", "[host]") {
  std::mt19937 random(3);
  int cut = 0;
  for (int round = 0; round < 3000; ++round) {
    const ConvSizes z = random_sizes(random);
    for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weight}) {
      if (pass == ConvPass::data && z.depth_reach() < z.geometry.depth.stride) continue;
      const ConvBlocks blocks(pass, z, 16);
      CAPTURE(round, static_cast<int>(pass), z.n, z.d, z.o, z.t, blocks.count());
      if (blocks.count() > z.n) ++cut;
      std::int64_t next = 0, done = 0;  // of the axis that is divided; images
      for (std::int64_t i = 0; i < blocks.count(); ++i) {
        const ConvBlock b = blocks[i];
        const ConvSizes& own = blocks.shapes()[b.shape];
        REQUIRE(own.n == b.images.count());
        REQUIRE(own.d == b.in.count());
        REQUIRE(own.o == b.out.count());
        REQUIRE(own.n * own.image_inputs() <= blocks.inputs());
        REQUIRE(own.n * own.image_outputs() <= blocks.outputs());
        REQUIRE((own.d > 0 && own.o > 0 && own.geometry.depth.before >= 0));
        const kernels::cpu::ConvRange own_part = pass == ConvPass::data ? b.in : b.out;
        REQUIRE(b.images.begin == done);
        REQUIRE(own_part.begin == next);
        next = own_part.end;
        if (next == (pass == ConvPass::data ? z.d : z.o)) {
          next = 0;
          done = b.images.end;
        }
        // Forward and weight: what each result reads. Data: who reads each slice of x.
        for (std::int64_t o = 0; o < z.o; ++o) {
          std::vector<std::int64_t> whole = reads(z, o, 0), part;
          const bool mine = o >= b.out.begin && o < b.out.end;
          if (mine) part = reads(own, o - b.out.begin, b.in.begin);
          if (pass == ConvPass::data)
            std::erase_if(
                whole, [&](std::int64_t at) { return at < own_part.begin || at >= own_part.end; });
          if (mine || pass == ConvPass::data) REQUIRE(part == whole);
        }
      }
      REQUIRE((done == z.n && next == 0));
    }
  }
  CHECK(cut > 1000);
}

}  // namespace firn::testing
