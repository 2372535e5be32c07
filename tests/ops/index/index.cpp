// Rows: ops that read at positions held in a tensor.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

FIRN_OP_ROWS(indexing) {
  // Fewer rows than indices: rows repeat, so that gradients have to add up.
  Row("embedding", [](const Args& x) { return embedding(x[0], x[1]); })
      .args({real(), index(4)})
      .shapes({{{4, 3}, {6}},
               {{5, 2}, {2, 3}},
               {{4, 3}, {}},
               {{4, 3}, {0}},
               {{4, 1}, {9}},
               {{7, 65}, {33}},
               {{4, 2}, {65537}}})
      .accuracy(Accuracy::sum)
      .golden()
      .integers();
  Row("index_select axis 0", [](const Args& x) { return index_select(x[0], 0, x[1]); })
      .args({real(), index(3)})
      .shapes({{{3, 4}, {5}}, {{3}, {4}}, {{4, 2, 3}, {0}}, {{5, 65}, {17}}})
      .accuracy(Accuracy::sum)
      .golden()
      .integers();
  Row("index_select axis 1", [](const Args& x) { return index_select(x[0], 1, x[1]); })
      .args({real(), index(3)})
      .shapes({{{2, 3}, {5}}, {{2, 4, 3}, {5}}, {{17, 5}, {33}}})
      .accuracy(Accuracy::sum)
      .golden();
  Row("index_select last axis", [](const Args& x) { return index_select(x[0], -1, x[1]); })
      .args({real(), index(3)})
      .shapes({{{2, 4, 3}, {5}}, {{3}, {7}}})
      .accuracy(Accuracy::sum)
      .golden();
  Row("gather axis 0", [](const Args& x) { return gather(x[0], 0, x[1]); })
      .args({real(), index(3)})
      .shapes({{{3, 4}, {5, 4}}, {{3, 4}, {2, 3}}, {{3}, {7}}, {{4, 2, 3}, {5, 2, 2}}})
      .accuracy(Accuracy::sum)
      .golden()
      .integers();
  Row("gather axis 1", [](const Args& x) { return gather(x[0], 1, x[1]); })
      .args({real(), index(3)})
      .shapes({{{2, 3}, {2, 5}},
               {{4, 3}, {3, 2}},
               {{2, 4, 3}, {2, 5, 3}},
               {{33, 5}, {33, 9}},
               {{2, 3}, {2, 0}}})
      .accuracy(Accuracy::sum)
      .golden();
  Row("gather last axis", [](const Args& x) { return gather(x[0], -1, x[1]); })
      .args({real(), index(3)})
      .shapes({{{2, 4, 3}, {2, 4, 5}}, {{65537, 3}, {65537, 1}}})
      .accuracy(Accuracy::sum)
      .golden();
  Row("one_hot", [](const Args& x) { return one_hot(x[0], 5); })
      .args({index(5)})
      .shapes({{{6}}, {{2, 3}}, {{}}, {{0}}, {{1025}}})
      .accuracy(Accuracy::exact)
      .golden()
      .own_dtype();
}

}  // namespace
}  // namespace firn::testing
