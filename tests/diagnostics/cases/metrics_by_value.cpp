// A metric, or a shared pointer to one that is read afterwards.
// compiles
#include <firn/firn.h>

using namespace firn;

int main() {
  const auto accuracy = std::make_shared<metrics::Accuracy>();
  const std::vector<std::shared_ptr<metrics::Metric>> all = {accuracy};
  train::FitOptions a{.metrics = {metrics::Accuracy(), metrics::Confusion({.classes = 3})}};
  const train::FitOptions b{.metrics = {accuracy, metrics::Confusion({.classes = 3})}};
  const train::FitOptions c{.metrics = all};
  a.metrics.push_back(accuracy);
}
