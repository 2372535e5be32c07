// The mistakes that a classifier is most sure about.
#include "firn/metrics/mistakes.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/thread_check.h"

using namespace firn;
using metrics::Mistakes;

namespace {

/// Logits of two classes whose probability of class 1 is `p`.
Tensor logits(const std::vector<double>& p) {
  std::vector<float> out;
  for (const double x : p) {
    out.push_back(0);
    out.push_back(static_cast<float>(std::log(x / (1 - x))));
  }
  return tensor(out, {static_cast<std::int64_t>(p.size()), 2});
}

Tensor classes(const std::vector<std::int64_t>& list) {
  return tensor(list, {static_cast<std::int64_t>(list.size())});
}

/// Pictures of 2 x 3 pixels: picture i has the value first + i, and one pixel that is 0.
Tensor pictures(std::int64_t n, double first) {
  const Tensor each = reshape(arange(n, f32) + first, {n, 1, 1, 1});
  const Tensor mask = reshape(tensor({0.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}), {1, 1, 2, 3});
  return each * mask;
}

}  // namespace

TEST_CASE("mistakes: the surest wrong ones of all batches, in order") {
  Mistakes m({.keep = 3, .white = 100});
  CHECK(m.list().empty());
  // Right, wrong with 0.9, wrong with 0.6, right.
  m.update_from(pictures(4, 10), logits({0.7, 0.9, 0.6, 0.2}), classes({1, 0, 0, 0}));
  REQUIRE(m.list().size() == 2);
  // Wrong with 0.8 for class 0, wrong with 0.95, right.
  m.update_from(pictures(3, 50), logits({0.2, 0.95, 0.1}), classes({1, 0, 0}));
  const auto list = m.list();
  REQUIRE(list.size() == 3);
  CHECK(list[0].probability == Approx(0.95));
  CHECK(list[1].probability == Approx(0.9));
  CHECK(list[2].probability == Approx(0.8));
  CHECK(list[0].target == 0);
  CHECK(list[0].predicted == 1);
  CHECK(list[2].target == 1);
  CHECK(list[2].predicted == 0);
  CHECK(list[0].height == 2);
  CHECK(list[0].width == 3);
  CHECK(list[0].channels == 1);
  // 51 of 100; the darkest pixel is black.
  CHECK(list[0].pixels == std::vector<std::uint8_t>{0, 130, 130, 130, 130, 130});
  CHECK(list[2].pixels[1] == 128);  // 50 of 100
  m.reset();
  CHECK(m.list().empty());
  CHECK(m.values().empty());
}

TEST_CASE("mistakes: ignored targets and outputs that are NaN are none") {
  Mistakes m({.ignore_index = -100});
  Tensor out = logits({0.9, 0.9, 0.9});
  copy_(slice(out, 0, 1, 2), full({1, 2}, std::numeric_limits<double>::quiet_NaN()));
  m.update_from(pictures(3, 1), out, classes({0, 0, -100}));
  REQUIRE(m.list().size() == 1);
  CHECK(m.list()[0].probability == Approx(0.9));
}

TEST_CASE("mistakes: flat inputs need the size, large pictures lose pixels, colours stay") {
  const Tensor target = classes({0});
  Mistakes flat({.height = 2, .width = 3});
  flat.update_from(reshape(pictures(1, 5), {1, 6}).to(f16), logits({0.9}), target);
  CHECK(flat.list()[0].pixels == std::vector<std::uint8_t>{0, 255, 255, 255, 255, 255});
  Mistakes large;
  large.update_from(zeros({1, 3, 100, 40}), logits({0.9}), target);
  CHECK(large.list()[0].height == 34);
  CHECK(large.list()[0].width == 40);
  CHECK(large.list()[0].channels == 3);
  CHECK(large.list()[0].pixels.size() == 34 * 40 * 3);
}

TEST_CASE("mistakes: what does not fit is refused, and nothing is lost") {
  Mistakes m;
  const Tensor y = classes({0, 0});
  m.update_from(pictures(2, 1), logits({0.9, 0.8}), y);
  CHECK_THROWS_WITH(m.update(logits({0.9, 0.8}), y), test::contains("update_from"));
  CHECK_THROWS_WITH(m.update_from(zeros({2, 6}), logits({0.9, 0.8}), y),
                    test::contains("height and width"));
  CHECK_THROWS_WITH(m.update_from(zeros({2, 2, 2, 3}), logits({0.9, 0.8}), y),
                    test::contains("1 or 3 channels"));
  CHECK_THROWS_WITH(m.update_from(zeros({2, 1, 3, 3}), logits({0.9, 0.8}), y),
                    test::contains("one size"));
  CHECK_THROWS_WITH(m.update_from(pictures(1, 1), logits({0.9, 0.8}), y), test::contains("axis 0"));
  CHECK_THROWS_WITH(m.update_from(zeros({2, 1, 0, 3}), logits({0.9, 0.8}), y),
                    test::contains("pictures have pixels"));
  Mistakes sized({.height = 4, .width = 4});
  CHECK_THROWS_WITH(sized.update_from(zeros({2, 8, 2}), logits({0.9, 0.8}), y),
                    test::contains("flatten"));
  CHECK_THROWS_AS(Mistakes({.black = std::numeric_limits<double>::quiet_NaN()}), Error);
  CHECK(m.list().size() == 2);
  CHECK_THROWS_AS(Mistakes({.keep = 0}), Error);
  CHECK_THROWS_AS(Mistakes({.height = 3}), Error);
  CHECK_THROWS_AS(Mistakes({.black = 1, .white = 1}), Error);
}

TEST_CASE("mistakes: the log has a picture that a browser reads", "[host]") {
  Mistakes m({.black = 0, .white = 255});
  m.update_from(full({1, 1, 1, 1}, 255), logits({0.9}), classes({0}));
  train::Record details;
  m.add_details(details);
  // BM, 58 bytes, one white pixel and its padding.
  CHECK(details.text().find("data:image/bmp;base64,Qk06AAAAAAAAADYAAAAoAAAAAQAAAAEAAAABABgA"
                            "AAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAA////AA==\"") != std::string::npos);
  CHECK(details.text().find("\"true\":0,\"predicted\":1,\"probability\":0.") != std::string::npos);
}

TEST_CASE("mistakes: a retried cycle leaves what it has found", "[host]") {
  Mistakes m;
  const Tensor y = classes({0});
  m.update_from(pictures(1, 1), logits({0.6}), y);
  {
    RollbackPoint point;
    m.update_from(pictures(1, 2), logits({0.9}), y);
    CHECK(m.list().size() == 2);
    point.roll_back();
  }
  REQUIRE(m.list().size() == 1);
  CHECK(m.list()[0].probability == Approx(0.6));
}

TEST_CASE("mistakes: ranks have those of all, one without samples too", "[host]") {
  dist::run_local(3, [](const dist::Group& group) {
    Mistakes m({.keep = 2, .white = 10});
    const Tensor y = classes({0});
    if (group.rank() < 2)
      m.update_from(pictures(1, group.rank()), logits({group.rank() == 0 ? 0.7 : 0.8}), y);
    m.combine(group);
    const auto list = m.list();
    THREAD_CHECK(list.size() == 2);
    THREAD_CHECK(list[0].probability == Approx(0.8));
    THREAD_CHECK(list[1].probability == Approx(0.7));
    m.reset();
    m.combine(group);
    THREAD_CHECK(m.list().empty());
  });
}
