// The calls whose neighbours a_bool_for_a_number.cpp and a_number_for_a_bool.cpp refuse.
// compiles
#include <firn/firn.h>

using namespace firn;

int main() {
  const Tensor x = zeros({2, 3});
  const std::vector<bool> kept = {true, false};
  (void)var(x), (void)var(x, 1, 0), (void)var(x, {}, 0, true), (void)x.var({0, 1}, 1, kept[0]);
  (void)firn::std(x, -1, 0, true), (void)var_mean(x, 1, 1, true), (void)cov(x, 0);
  (void)sum(x, 1, true), (void)sum(x, {0, 1}, kept[1]), (void)x.max(1, x.rank() > 1),
      (void)norm(x, 1, true);
  (void)argmax(x, 1, true), (void)median(x, 1, true), (void)sort(x, 1, {.descending = true});
  (void)full({2}, true, boolean), (void)full({2}, 1), (void)where(x > 0, 1, 0),
      (void)dropout(x, 0.5, true);
  (void)linalg::matrix_norm(x, 2, {-2, -1}, true);
}
