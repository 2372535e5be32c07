// oneDNN generates code at the first use of a kind of product or convolution. There is memory for
// all of it, or firn throws before.
#include "kernels/settings/isa.h"
#if defined(FIRN_HAS_ONEDNN) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "kernels/cpu/conv/onednn.h"
#include "kernels/cpu/gemm/block.h"
#include "kernels/cpu/gemm/onednn.h"
#include "support/catch.h"
#include "support/in_child.h"
#include "support/values.h"

using namespace firn;
using firn::testing::in_child;
using firn::testing::Rng;
using kernels::ConvPass;
using kernels::ConvSizes;
using kernels::cpu::kCodeReserve;
using kernels::cpu::OnednnConv;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Bytes of executable pages that belong to no file.
std::size_t code_bytes() {
  std::ifstream maps("/proc/self/maps");
  std::size_t total = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, inode = 0;
    char rights[8] = {}, rest[2] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %*s %*s %lu %1s", &begin, &end, rights, &inode,
                    rest) == 4 &&
        inode == 0 && rights[2] == 'x')
      total += end - begin;
  }
  return total;
}

/// [m, k] x [k, n] of zeros by oneDNN, with any operand transposed.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, bool a_turned, bool b_turned,
              float alpha, float beta) {
  using kernels::cpu::FIRN_ISA::BlockOperand;
  constexpr std::size_t kMost = std::size_t{1} << 20;
  static std::array<float, kMost> a, b, c;  // no part of the heap
  kernels::cpu::FIRN_ISA::gemm_block<float>(
      m, n, k, alpha, BlockOperand<float>{a.data(), a_turned ? m : k, a_turned},
      BlockOperand<float>{b.data(), b_turned ? k : n, b_turned}, beta, c.data(), n);
}

/// "" if no call of oneDNN takes more pages for code than firn asks for before it.
std::string products_pages() {
  auto grown = [before = code_bytes()]() mutable {
    const std::size_t now = code_bytes(), more = now - before;
    before = now;
    return more;
  };
  multiply(64, 64, 64, false, false, 1, 0);
  if (const auto n = grown(); n > kCodeReserve) return "the first: " + std::to_string(n);
  multiply(4, 5, 3, false, true, 1, 0);
  if (const auto n = grown(); n > kCodeReserve) return "few rows: " + std::to_string(n);
  Rng rng(3);
  constexpr std::array<std::int64_t, 12> kSizes = {1, 2, 3, 7, 15, 16, 17, 33, 100, 256, 400, 1024};
  for (int i = 0; i < 1200; ++i) {
    const auto size = [&] { return kSizes[static_cast<std::size_t>(rng.below(12))]; };
    const std::int64_t m = size(), n = size(), k = size(), way = rng.below(4);
    if (m * n * k > 30'000'000) continue;
    multiply(m, n, k, way & 1, way & 2, i % 5 == 0 ? 2.0f : 1.0f,
             std::array{0.0f, 1.0f, 0.5f}[static_cast<std::size_t>(rng.below(3))]);
    if (const auto more = grown(); more > 0)
      return "generated late: " + std::to_string(m) + " " + std::to_string(n) + " " +
             std::to_string(k) + " way " + std::to_string(way);
  }
  return "";
}

ConvSizes square(std::int64_t n, std::int64_t c, std::int64_t k, std::int64_t size,
                 std::int64_t taps, std::int64_t stride, std::int64_t padding, bool volume) {
  ConvSizes z{};
  z.n = n;
  z.c = c;
  z.k = k;
  z.volumes = volume;
  z.h = z.w = size;
  z.r = z.s = taps;
  z.p = z.q = (size + 2 * padding - taps) / stride + 1;
  z.geometry.stride = {stride, stride};
  z.geometry.before = z.geometry.after = {padding, padding};
  if (volume) {
    z.d = size;
    z.t = taps;
    z.o = z.p;
    z.geometry.depth.stride = stride;
    z.geometry.depth.before = z.geometry.depth.after = padding;
  }
  return z;
}

std::string convolutions_pages() {
  for (const ConvSizes& z :
       {square(1, 1, 100, 14, 3, 2, 3, false), square(3, 256, 17, 5, 3, 2, 3, true),
        square(1, 64, 100, 28, 1, 1, 0, true), square(3, 17, 100, 56, 2, 3, 3, false),
        square(3, 16, 100, 14, 5, 2, 1, true), square(8, 64, 64, 56, 3, 1, 1, false),
        square(1, 3, 64, 57, 7, 2, 3, false), square(1, 256, 512, 28, 3, 1, 1, false)})
    for (const DType dtype : {f32, bf16})
      for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weight}) {
        const std::size_t before = code_bytes();
        const auto conv = OnednnConv::find(pass, dtype, {&z, 1}, pass == ConvPass::forward);
        if (const std::size_t n = code_bytes() - before; n > kCodeReserve)
          return std::to_string(z.c) + " -> " + std::to_string(z.k) + ": " + std::to_string(n);
      }
  return "";
}

/// How a process ends that computes with so much address space left: 0 done, 1 OutOfMemory, 2
/// another exception, -1 a signal.
int end_with(std::size_t left, const std::function<void()>& compute) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + left;
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      compute();
    } catch (const OutOfMemory&) {
      ::_exit(1);
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("oneDNN generates no more code at a time than firn asked for", "[kernels][gemm][host]") {
  CHECK(in_child("FIRN_THREADS", "1", products_pages).empty());
  CHECK(in_child("FIRN_THREADS", "1", convolutions_pages).empty());
}

TEST_CASE("the first products and convolutions of a process under a limit of memory throw",
          "[kernels][gemm][host]") {
  set_num_threads(1);
  const NoGrad guard;
  // Tensors come from the heap before the limit.
  const Tensor x = ones({1, 16, 9, 9}), w = ones({16, 16, 3, 3});
  const bool nothing_made = code_bytes() == 0;  // else earlier cases ran in this process
  const std::array<std::function<void()>, 4> firsts = {
      [] { multiply(4, 5, 3, false, true, 1, 0); },
      [] { multiply(64, 64, 64, false, false, 1, 0); },
      [] {
        multiply(64, 64, 64, false, false, 1, 0);
        multiply(4, 5, 3, false, true, 1, 0);
      },
      [&] { conv2d(x, w); },
  };
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    CAPTURE(i);
    int done = 0, refused = 0;
    // A heap with room, as earlier calls leave it: then pages for code are all that may lack.
    for (const bool heap : {false, true})
      for (std::size_t left = 0; left < 40 * kMiB; left += 2 * kMiB) {
        CAPTURE(heap, left / kMiB);
        const int end = end_with(left, [&] {
          if (heap)
            for (int times = 0; times < 2; ++times) {
              void* volatile p = std::malloc(8 * kMiB);
              std::free(p);
            }
          firsts[i]();
        });
        CHECK((end == 0 || end == 1));
        (end == 0 ? done : refused) += 1;
      }
    CHECK(done > 0);
    if (nothing_made) CHECK(refused > 0);
  }
}
#endif
