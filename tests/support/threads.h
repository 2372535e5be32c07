// A number of CPU threads for the length of a scope.
#pragma once

#include "firn/device.h"

namespace firn::testing {

class Threads {
 public:
  explicit Threads(int n) : before_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace firn::testing
