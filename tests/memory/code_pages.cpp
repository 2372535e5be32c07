// The system refuses pages for generated code while the heap has room.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using firn::testing::values_of;

#if defined(FIRN_HAS_ONEDNN) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

/// While alive, the process gets no pages from the system.
class NoMorePages {
 public:
  NoMorePages() {
    long pages = 0;
    if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(f, "%ld", &pages) != 1) pages = 0;
      std::fclose(f);
    }
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    setrlimit(RLIMIT_AS, &limit);
  }
  ~NoMorePages() { setrlimit(RLIMIT_AS, &before_); }
  NoMorePages(const NoMorePages&) = delete;
  NoMorePages& operator=(const NoMorePages&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a convolution without pages for its code throws, and computes later", "[memory][host]") {
  const Tensor x = ones({2, 16, 13, 13}), w = ones({16, 16, 3, 3});
  conv2d(x, ones({16, 16, 1, 1}));  // starts oneDNN and the threads
  std::vector<std::unique_ptr<char[]>> room(513);
  for (auto& block : room) block = std::make_unique<char[]>(std::size_t{64} << 10);
  room.erase(room.begin(), room.end() - 1);  // the last one keeps the heap from giving it back
  {
    const NoMorePages guard;
    CHECK_THROWS_WITH(conv2d(x, w), test::contains("no address space left for the code that oneDNN generates"));
  }
  CHECK(values_of(conv2d(x, w))[0] == 16 * 9);
}
#endif
