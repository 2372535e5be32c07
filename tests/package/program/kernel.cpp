// A kernel outside of firn, as kernel_support.h offers it: an operation with a loop of the user's
// own, scratch memory, random numbers and an effect for graphs, trained beside firn's operations.
// Prints what consumer.cpp prints, so that the same test reads both.
#include <firn/firn.h>
#include <firn/runtime/kernel_support.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

using namespace firn;

namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::cerr << what << "\n";
  std::exit(1);
}

/// x scaled by a number in [0.5, 1.5) for each row, [rows, columns] f32 on the CPU.
Tensor scale_rows(const Tensor& x, Generator& generator, int& launches) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const Device device = x.device();
  runtime::refuse_capture("scale_rows", device, "it runs on the CPU");
  const RandomKey key =
      runtime::reserve_random(generator, device, static_cast<std::uint64_t>(rows));
  const runtime::Workspace scratch(static_cast<std::size_t>(rows) * sizeof(double),
                                   current_stream(device));
  auto* factors = scratch.as<double>();
  for (std::int64_t i = 0; i < rows; ++i)
    factors[i] = 0.5 + std::fmod(0.618 * static_cast<double>(key.seed + key.offset) +
                                     0.37 * static_cast<double>(i),
                                 1.0);
  const Tensor in = contiguous(x.detach());
  Tensor y = empty_like(in), kept = empty({rows, 1}, f32, device);
  const auto* from = in.view().as<float>();
  auto* to = y.mutable_view().as<float>();
  for (std::int64_t i = 0; i < rows; ++i) {
    kept.mutable_view().as<float>()[i] = static_cast<float>(factors[i]);
    for (std::int64_t j = 0; j < columns; ++j)
      to[i * columns + j] = static_cast<float>(from[i * columns + j] * factors[i]);
  }
  runtime::note_kernel("scale_rows");
  runtime::on_replay(device, [&launches] { ++launches; });  // nothing without a capture
  ++launches;
  return custom("scale_rows", {x}, y, {kept},
                [](const CustomBackward& b) { return std::vector<Tensor>{b.grad * b.saved[0]}; });
}

}  // namespace

int main() {
  Generator generator(7);
  int launches = 0;
  manual_seed(1);
  nn::Linear layer(3, 2);
  optim::SGD opt(layer.parameters(), {.lr = 0.1});
  const Tensor x = ones({4, 3});
  const Tensor before = layer.weight.detach().clone();
  opt.backward(mse_loss(scale_rows(layer(x), generator, launches), zeros({4, 2})));
  expect(static_cast<bool>(opt.step()), "no step was made");
  expect((layer.weight - before).abs().max().item() > 0, "the gradient did not pass the kernel");
  expect(launches == 1, "an effect ran without a capture");
  expect(generator.get().offset == 1, "four numbers are one block");
  expect(!runtime::capturing(Device::cpu()), "the CPU captures nothing");
  Tensor w = ones({2, 3}).set_requires_grad();
  const Tensor y = scale_rows(w, generator, launches);
  y.sum().backward();
  expect((w.grad() - y).abs().max().item() == 0, "the gradient is not the factor of its row");
  std::cout << "loss 12, gradient 24\n";
}
