// The calls of training steps on 2 to 4 ranks that are threads, counted.
#include "dist/traffic/steps.h"
#include "firn/dist/local.h"

int main() {
  for (const int n : {2, 3, 4})
    firn::dist::run_local(n, [](const firn::dist::Group& group) {
      firn::testing::CountedSteps(
          group, [] {}, [](const std::string&) {})
          .run_all();
    });
}
