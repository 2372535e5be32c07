// What a call of the fuzzer is made of: numbers, shapes and tensors drawn from a seed, ordinary
// ones and hostile ones, and a text that says which were drawn.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "firn/firn.h"
#include "support/values.h"

namespace fuzz {

using firn::Dims;
using firn::DType;
using firn::Shape;
using firn::Tensor;

/// Draws what one call takes. Everything drawn is written down at once: if the call ends the
/// process, the text is all that is left of it.
class Draw {
 public:
  explicit Draw(std::uint64_t seed);
  ~Draw();
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;

  /// The call at hand, also while a signal or a sanitizer ends the process.
  static const char* current() noexcept;

  /// Appends to the text.
  void say(std::string_view words);
  const std::string& text() const noexcept { return text_; }

  // ---- Without words ----
  std::int64_t below(std::int64_t n) { return rng_.below(n); }
  bool chance(int percent) { return rng_.below(100) < percent; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[rng_.below(static_cast<std::int64_t>(choices.size()))];
  }
  /// Mostly in [low, high]; sometimes any number at all.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  double real_number();
  Dims list(int length, std::int64_t low, std::int64_t high);
  Shape small_shape(int least_rank, int most_rank);

  // ---- Which the text names ----
  std::int64_t number(std::string_view name, std::int64_t low, std::int64_t high);
  double real(std::string_view name);
  bool flag(std::string_view name);
  DType dtype(std::string_view name);
  Dims numbers(std::string_view name, int length, std::int64_t low, std::int64_t high);
  std::int64_t axis(const Tensor& x);
  Dims axes(const Tensor& x);

  // ---- Tensors: views of every kind, with NaN, infinities and extreme integers among the values
  // --
  /// Of any shape and dtype; a few are expanded to more elements than any memory holds.
  Tensor any();
  /// The same, but its elements can be counted.
  Tensor small();
  Tensor floating(int least_rank = 0, int most_rank = 8);
  /// Of that shape and dtype mostly.
  Tensor of(const Shape& shape, DType dtype);
  Tensor index(const Shape& shape, std::int64_t bound);
  /// Undefined now and then.
  Tensor maybe(const Tensor& t);

 private:
  Tensor filled(const Shape& shape, DType dtype);
  Tensor seen_otherwise(Tensor t);
  Tensor named(const Tensor& t);

  firn::testing::Rng rng_;
  std::string text_;
};

/// A tensor with so few elements that kernels may look at all of them.
bool is_small(const Tensor& t);

/// One operation, called with what is drawn; results are tensors to be read, and to go back from.
struct Call {
  const char* name;
  std::vector<Tensor> (*run)(Draw& d);
};

std::vector<Call> elementwise_calls();
std::vector<Call> shape_calls();
std::vector<Call> image_calls();
std::vector<Call> other_calls();
std::vector<Call> transformer_calls();
std::vector<Call> rearrange_calls();
std::vector<Call> product_calls();
std::vector<Call> linalg_calls();

}  // namespace fuzz
