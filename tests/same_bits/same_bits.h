// Short trainings whose weights and state are hashed, to show that a change of the code moves no
// bit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace same_bits {

/// FNV-1a over bytes.
class Hash {
 public:
  void add(const void* bytes, std::size_t count);
  void add(const std::string& text) { add(text.data(), text.size()); }
  void add(double value) { add(&value, sizeof value); }
  /// The tensor's elements in the order of its axes, from any device.
  void add(const firn::Tensor& tensor);
  /// Weights and buffers of `net`; state of `optimizer` but for entries whose layout is private.
  void add(const firn::nn::Module& net, const firn::optim::Optimizer& optimizer);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// A training by its name. `run` adds what must stay the same to the hash.
struct Training {
  std::string name;
  std::function<void(Hash&)> run;
};

/// A multilayer perceptron with dropout, whose widths do not fill vector registers.
struct Net : firn::nn::Module {
  firn::nn::Linear in{10, 37}, hidden{37, 37}, out{37, 5};
  firn::nn::Dropout drop{0.2};
  FIRN_MEMBERS(in, hidden, out, drop)
  firn::Tensor forward(const firn::Tensor& x) override {
    const firn::Tensor h = relu(in(x));
    return out(drop(h + gelu(hidden(h))));
  }
};

/// Rows of ten numbers and their classes. Threads get the same ones for the same `seed`.
struct Batch {
  Batch(std::int64_t rows, std::uint64_t seed, firn::DType dtype = firn::f32);
  firn::Tensor x, y;
};

/// The names of the trainings carry the dtype.
const char* name_of(firn::DType dtype);

std::vector<Training> trainings_of_one_process();
std::vector<Training> trainings_over_ranks();

}  // namespace same_bits
