// Functions that stop in their middle: order, errors, unwinding, and the modes that they have.
#include "base/thread/coroutine.h"

#include <stdexcept>
#include <string>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/thread_check.h"
#include "support/values.h"

namespace firn::testing {
namespace {

TEST_CASE("coroutine: functions go on in turns, each where it stopped", "[host]") {
  std::string order;
  const auto steps = [&order](char name) {
    return [&order, name] {
      for (int i = 0; i < 3; ++i) {
        order += name;
        if (i < 2) Coroutine::stop();
      }
    };
  };
  Coroutine a(steps('a')), b(steps('b'));
  CHECK(a.resume("test"));
  CHECK(b.resume("test"));
  CHECK(a.resume("test"));
  CHECK_FALSE(a.resume("test"));
  CHECK(b.resume("test"));
  CHECK_FALSE(b.resume("test"));
  CHECK(order == "abaabb");
}

TEST_CASE("coroutine: what the function throws comes out of resume()", "[host]") {
  Coroutine c([] {
    Coroutine::stop();
    throw std::runtime_error("here");
  });
  CHECK(c.resume("test"));
  CHECK_THROWS_WITH(c.resume("test"), "here");
}

TEST_CASE("coroutine: one that is destroyed in its middle is unwound", "[host]") {
  struct Note {
    std::string& to;
    ~Note() { to += "unwound"; }
  };
  std::string text;
  {
    const Coroutine never([&] { text += "ran"; });
    Coroutine c([&] {
      const Note note{text};
      try {
        Coroutine::stop();
      } catch (...) {
        text += "caught ";
        Coroutine::stop();  // does not return either
      }
      text += "went on";
    });
    CHECK(c.resume("test"));
  }
  CHECK(text == "caught unwound");
}

TEST_CASE("coroutine: one within another", "[host]") {
  std::string order;
  Coroutine outer([&] {
    Coroutine inner([&] {
      order += '1';
      Coroutine::stop();
      order += '3';
    });
    THREAD_CHECK(inner.resume("test"));
    order += '2';
    Coroutine::stop();
    THREAD_CHECK(!inner.resume("test"));
  });
  CHECK(outer.resume("test"));
  CHECK(order == "12");
  CHECK_FALSE(outer.resume("test"));
  CHECK(order == "123");
}

TEST_CASE("coroutine: the function has the modes of who resumes it first", "[host]") {
  const NumThreadsScope threads(1);
  const Autocast half(bf16);
  const NoGrad plain;
  const OwnerScope owner(Owner::data);
  const Tensor weight = tensor<float>({1, 2}, {2}).set_requires_grad();
  const RollbackPoint point({Rollback::statistics});
  DType product = f32;
  bool recorded = true;
  Coroutine c([&] {
    const Tensor x = ones({1, 2}), y = matmul(x, ones({2, 2}));
    product = y.dtype();
    recorded = (weight * 2).requires_grad();
    THREAD_CHECK(num_threads() == 1);
    THREAD_CHECK(OwnerScope::current() == Owner::data);
    THREAD_CHECK(runtime::rollback_wanted());
    const EnableGrad its_own;
    Coroutine::stop();
    THREAD_CHECK(grad_enabled());
  });
  CHECK(c.resume("test"));
  CHECK(product == bf16);
  CHECK_FALSE(recorded);
  CHECK_FALSE(grad_enabled());
  CHECK_FALSE(c.resume("test"));
}

}  // namespace
}  // namespace firn::testing
