// The entry point of every test program.
//   FIRN_TEST_DEVICE=cuda    the device on which tensors are made that name none (default: cpu);
//                            where there is no such device, no case runs, and one line says so
//   --perf [part of a name]  measures the rows of the program's op table instead of testing them
#define CATCH_CONFIG_RUNNER
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "firn/device.h"
#include "firn/runtime/stream.h"
#include "support/ops/op_row.h"
#include "support/thread_check.h"

namespace {

firn::Device device_under_test() {
  const char* name = std::getenv("FIRN_TEST_DEVICE");
  return name == nullptr || *name == '\0' ? firn::Device::cpu() : firn::Device::parse(name);
}

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

/// Ends the program at an assertion of another thread than main()'s, for which Catch2's assertions
/// are not made.
struct OneThreadAsserts : Listener {
  using Listener::Listener;
  void assertionStarting(const Catch::AssertionInfo& info) override { look(info.lineInfo); }
#if __has_include(<catch2/catch_all.hpp>)
  void assertionEnded(const Catch::AssertionStats& stats) override {
    look(stats.assertionResult.getSourceInfo());
  }
#else
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    look(stats.assertionResult.getSourceInfo());
    return false;
  }
#endif

 private:
  static void look(const Catch::SourceLineInfo& at) {
    if (firn::testing::on_main_thread()) return;
    std::fprintf(stderr, "%s:%zu: an assertion of a thread; for those there is THREAD_CHECK\n",
                 at.file, at.line);
    std::abort();
  }
};
CATCH_REGISTER_LISTENER(OneThreadAsserts)

}  // namespace

int main(int argc, char** argv) {
  const firn::Device device = device_under_test();
  if (device.is_cuda() && device.index >= firn::cuda_device_count()) {
    std::printf("skipped: no CUDA device %d (built with CUDA: %s)\n", device.index,
                firn::built_with_cuda() ? "yes" : "no");
    return 0;
  }
  const firn::DeviceScope scope(device);
  if (argc >= 2 && std::string_view(argv[1]) == "--perf") {
    firn::testing::measure_rows(argc >= 3 ? argv[2] : "");
    return 0;
  }
  return Catch::Session().run(argc, argv);
}
