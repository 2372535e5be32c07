// The text of the progress bar.
#include "firn/train/progress.h"

#include <cstdint>
#include <limits>

#include "support/catch.h"

using firn::train::progress_bar;
using firn::train::progress_line;

TEST_CASE("progress: label, bar, share, rate and time left", "[host]") {
  CHECK(progress_bar("epoch 1/5", 30'000, 60'000, 1.0, 200) ==
        "epoch 1/5 [====================>                   ]  50%  30000 samples/s  ETA 0:01");
  CHECK(progress_bar("e", 10, 10, 1.0, 200) ==
        "e [========================================] 100%  10 samples/s  ETA 0:00");
  CHECK(progress_line("epoch 2/5", 100, 1'000'000, 1.0) ==
        "epoch 2/5   0%  100 samples/s  ETA 2:46:39");
  CHECK(progress_line("epoch 2/5", 0, 10, 0.0) == "epoch 2/5   0%");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(progress_line("a", std::int64_t{1} << 40, 1, 1) ==
        "a 100%  1099511627776 samples/s  ETA 0:00");
  CHECK(progress_line("a", kMost, 1, 0.0) == "a 100%");
  CHECK(progress_line("a", -kMost, kMost, 1) == "a   0%");
  CHECK(progress_line("a", 1, kMost, 1) == "a   0%  1 samples/s  ETA 99:59:59");
}

TEST_CASE("progress: never wider than asked for, and every part has its turn", "[host]") {
  std::size_t previous = 0;
  for (int columns = -1; columns < 120; ++columns) {
    const std::string text = progress_bar("epoch 12/100", 12'345, 60'000, 2.0, columns);
    CHECK(text.size() <= static_cast<std::size_t>(std::max(columns, 0)));
    CHECK(text.size() >= previous);
    previous = text.size();
  }
  CHECK(progress_bar("label", 1, 2, 1.0, 3).empty());
  CHECK(progress_bar("label", 1, 2, 1.0, 4) == " 50%");
  CHECK(progress_bar("label", 1, 2, 1.0, 10) == "label  50%");
}
