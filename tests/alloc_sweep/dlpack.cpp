// Tensors that change hands between libraries, in which every allocation fails once: a struct is
// then still its owner's, and nothing is held.
#include <memory>
#include <string>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "dlpack/foreign.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

class Give : public Work {
 public:
  ~Give() override { io::delete_dlpack(given_); }
  void run() override { given_ = io::to_dlpack(x_); }
  std::string kept() override {
    return std::to_string(x_.storage()->use_count()) + (x_.storage()->place_is_held() ? "h" : "f");
  }
  std::string made() override { return kept() + (given_ ? "given" : ""); }

 private:
  Tensor x_ = ones({3, 4});
  DLManagedTensorVersioned* given_ = nullptr;
};

template <bool kReadOnly>
class Take : public Work {
 public:
  void run() override { t_ = io::from_dlpack(foreign_.give()); }
  std::string kept() override { return std::to_string(foreign_.deleted()); }
  std::string made() override { return kept() + (t_.defined() ? bytes_of(t_) : ""); }

 private:
  Foreign<> foreign_{ones({4, 3}).transpose(0, 1), kReadOnly ? kDLPackReadOnly : 0};
  Tensor t_;
};

template <class W>
MakeWork work() {
  return [] { return std::make_unique<W>(); };
}

TEST_CASE("alloc_sweep: a dlpack struct changes hands, or nothing has happened", "[host]") {
  CHECK(sweep(work<Give>(), Fails::heap) >= 1);
  CHECK(sweep(work<Give>(), Fails::heap_for_good) >= 1);
  CHECK(sweep(work<Take<false>>(), Fails::heap) >= 3);
  CHECK(sweep(work<Take<false>>(), Fails::heap_for_good) >= 3);
  CHECK(sweep(work<Take<true>>(), Fails::heap) >= 4);
  CHECK(sweep(work<Take<true>>(), Fails::blocks) == 1);
}

}  // namespace
}  // namespace firn::testing
