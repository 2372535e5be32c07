#include "support/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "firn/runtime/storage.h"
#include "kernels/cpu/device/workspace.h"
#include "runtime/memory/allocator.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/ops/op_check.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

std::vector<char> bytes_of(const Storage& s) {
  std::vector<char> out(s.bytes());
  copy_bytes(out.data(), Device::cpu(), s.data(), s.device(), out.size());
  return out;
}

/// Free blocks of the allocator that are full of a pattern. A request of the same size gets one.
class SpoiltBlocks {
 public:
  /// For what `tensors` take. Releases them, so that no block without the pattern comes first.
  explicit SpoiltBlocks(std::vector<Tensor>& tensors) {
    constexpr int kBlocks = 8;  // results and other memory of the same size
    std::vector<std::pair<Device, std::size_t>> wanted;
    for (const Tensor& t : tensors)  // requests of several sizes share blocks
      if (const Storage& s = *t.storage(); s.bytes() > kLink)
        wanted.emplace_back(s.device(), memory::allocated_size(s.device(), s.bytes()));
    tensors.clear();
    std::vector<Ref<Storage>> blocks;
    for (const auto& [device, bytes] : wanted) {
      const std::vector<char> pattern(bytes, kPattern);
      for (int i = 0; i < kBlocks; ++i) {
        blocks.push_back(Storage::allocate(bytes, device));
        copy_bytes(blocks.back()->data(), device, pattern.data(), Device::cpu(), bytes);
        addresses_.insert(blocks.back()->data());
      }
    }
  }
  bool has(const Storage& s) const { return s.bytes() > kLink && addresses_.count(s.data()) > 0; }
  static bool untouched(const Storage& s) {
    const std::vector<char> bytes = bytes_of(s);
    return std::all_of(bytes.begin() + kLink, bytes.end(), [](char c) { return c == kPattern; });
  }

 private:
  static constexpr char kPattern = 0x5a;
  static constexpr std::ptrdiff_t kLink = 16;  ///< the allocator writes there when it is released

  std::set<const void*> addresses_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Footprint& f) {
  out << f.allocations << " allocations, peak " << f.total << " bytes";
  for (int i = 0; i < kOwnerCount; ++i)
    if (const std::size_t peak = f.owner[static_cast<std::size_t>(i)]; peak > 0)
      out << ", " << to_string(static_cast<Owner>(i)) << " " << peak;
  return out;
}

Footprint footprint_of(const std::function<void()>& call) {
  const MemoryStats before = memory_stats();
  reset_peak_memory();
  call();
  const MemoryStats after = memory_stats();
  Footprint f;
  f.allocations = after.allocations - before.allocations;
  f.total = after.total.peak - before.total.current;
  for (std::size_t i = 0; i < f.owner.size(); ++i)
    f.owner[i] = after.by_owner[i].peak - before.by_owner[i].current;
  return f;
}

Kept::Kept(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const Tensor& t : tensors_) bytes_.push_back(bytes_of(*t.storage()));
}
int Kept::changed() const {
  int n = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    n += bytes_of(*tensors_[i].storage()) != bytes_[i];
  return n;
}

int check_dry_run(const std::string& what, const std::function<std::vector<Tensor>()>& call,
                  const std::vector<Tensor>& kept) {
  INFO(what);
  std::vector<Tensor> results;
  const auto run = [&] { results = call(); };
  const auto run_dry = [&] {
    const DryRun dry;
    run();
  };
  const Footprint cold = footprint_of(run_dry);
  results.clear();
  const Footprint real = footprint_of(run);
  CHECK(cold == real);
  const Kept before(kept);
  const SpoiltBlocks blocks(results);
  CHECK(footprint_of(run_dry) == real);
  CHECK(before.changed() == 0);
  int compared = 0;
  for (const Tensor& t : results) {
    if (!blocks.has(*t.storage())) continue;
    CHECK(SpoiltBlocks::untouched(*t.storage()));
    ++compared;
  }
  CHECK(kernels::cpu::Slot::overflows() == 0);
  return compared;
}

void check_dry_run(const OpRow& row) {
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    const std::vector<std::vector<double>> values = operand_values(row, which);
    const auto check = [&](DType dtype, Layout layout, int threads) {
      if (too_slow(shapes, dtype, layout)) return;
      const Threads scope(threads);
      Args operands;
      for (std::size_t i = 0; i < row.args.size(); ++i)
        operands.push_back(make(values[i], shapes[i], dtype_for(row.args[i], dtype), layout));
      Tensor like;
      {
        const NoGrad guard;
        like = row.op(operands);
      }
      const Tensor seed = is_floating(like.dtype()) ? ones_like(like) : Tensor();
      const auto call = [&] {
        Args x;
        for (std::size_t i = 0; i < operands.size(); ++i) {
          x.push_back(operands[i].detach());
          if (row.args[i].differentiable) x.back().set_requires_grad();
        }
        std::vector<Tensor> results = {row.op(x)};
        if (!results[0].requires_grad()) return results;
        backward(results[0], {.initial_gradient = seed});
        backward(row.op(x), {.initial_gradient = seed});  // adds to the first gradients
        for (const Tensor& t : x)
          if (t.grad().defined()) results.push_back(t.grad());
        return results;
      };
      std::vector<Tensor> kept(operands.begin(), operands.end());
      if (seed.defined()) kept.push_back(seed);
      check_dry_run(fmt::format("{}, {}, {} threads, first operand {}", to_string(dtype),
                                to_string(layout), threads, to_string(shapes[0])),
                    call, kept);
    };
    const int most = default_device().is_cpu() ? 3 : 1;
    for (int threads = 1; threads <= most; ++threads) check(f32, Layout::contiguous, threads);
    check(f16, Layout::contiguous, most);
    check(f16, Layout::stepped, most);
    if (on_slow_device()) continue;
    for (const DType dtype : {f64, bf16}) check(dtype, Layout::contiguous, most);
    for (const Layout layout : {Layout::transposed, Layout::stepped}) check(f32, layout, most);
  }
}

}  // namespace firn::testing
