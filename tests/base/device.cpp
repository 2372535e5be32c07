// Devices, threads, random streams and the composition of errors.
#include "firn/device.h"

#include "firn/error.h"
#include "firn/random.h"
#include "firn/runtime/stream.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

TEST_CASE("Device: names are parsed and printed", "[base]") {
  CHECK(Device::parse("cpu") == Device::cpu());
  CHECK(Device::parse("cuda") == Device::cuda(0));
  CHECK(Device::parse("cuda:3") == Device::cuda(3));
  CHECK(to_string(Device::cpu()) == "cpu");
  CHECK(to_string(Device::cuda(3)) == "cuda:3");
  CHECK(Device() == Device::cpu());
}

TEST_CASE("Device: anything else is refused with what was given", "[base]") {
  for (const char* text :
       {"", "CPU", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:128", "cpu:0", "cuda: 1"}) {
    INFO(text);
    CHECK(error_of([&] { Device::parse(text); }) ==
          std::string("[device] '") + text + "' is not a device; hint: use cpu, cuda or cuda:N");
  }
}

TEST_CASE("Device: numbers that no device has are refused, not wrapped", "[base]") {
  CHECK(error_of([] {
          Device(DeviceType::cuda, 256);
        }).find("[device] there is no CUDA device 256") == 0);
  CHECK(error_of([] { Device::cuda(128); }).find("CUDA device 128") != std::string::npos);
  CHECK(error_of([] { Device::cuda(-1); }).find("CUDA device -1") != std::string::npos);
  CHECK(error_of([] { Device(DeviceType::cpu, 3); }).find("[device] there is no CPU device 3") ==
        0);
  CHECK(Device(DeviceType::cuda, 127) == Device::parse("cuda:127"));
  CHECK(Device(DeviceType::cpu, 0) == Device::cpu());
  static_assert(Device::cuda(3).index == 3);
}

TEST_CASE("Device: an absent one is refused with the reason", "[base]") {
  CHECK_NOTHROW(require_device("test", Device::cpu()));
  if (cuda_device_count() > 0) {
    CHECK_NOTHROW(require_device("test", Device::cuda(0)));
    CHECK_THROWS_AS(require_device("test", Device::cuda(cuda_device_count())), DeviceError);
  } else {
    CHECK_THROWS_AS(require_device("test", Device::cuda(0)), DeviceError);
    const std::string message = error_of([] { require_device("test", Device::cuda(0)); });
    CHECK(message.find("[test]") == 0);
    if (!built_with_cuda()) CHECK(message.find("FIRN_CUDA") != std::string::npos);
  }
}

TEST_CASE("threads: the number is kept and must be positive", "[base]") {
  const int before = num_threads();
  set_num_threads(3);
  CHECK(num_threads() == 3);
  CHECK(error_of([] { set_num_threads(0); }) ==
        "[set_num_threads] needs at least 1 thread, got 0; hint: 1 computes in the calling thread "
        "alone");
  CHECK(num_threads() == 3);
  set_num_threads(before);
}

TEST_CASE("Error: op, message and hint are kept apart and composed", "[base]") {
  const Error e("matmul", "inner sizes differ", "transpose b");
  CHECK(std::string(e.what()) == "[matmul] inner sizes differ; hint: transpose b");
  CHECK(e.op() == "matmul");
  CHECK(e.hint() == "transpose b");
  CHECK(std::string(Error("op", "no hint").what()) == "[op] no hint");
  const IoError io("read", "a.gz", "truncated at byte 12");
  CHECK(io.path() == "a.gz");
  CHECK(std::string(io.what()) == "[read] a.gz: truncated at byte 12");
  CHECK(OutOfMemory("no memory left", 123).requested_bytes() == 123);
}

TEST_CASE("Generator: a stream can be put back to the bit", "[base]") {
  Generator g(5);
  CHECK(g.get().seed == 5);
  CHECK(g.get().offset == 0);
  CHECK(g.reserve(1).offset == 0);
  CHECK(g.reserve(4).offset == 1);  // one number took a whole block of four
  CHECK(g.reserve(9).offset == 2);
  CHECK(g.get().offset == 5);
  const RandomKey key = g.get();
  g.reserve(100);
  g.set(key);
  CHECK(g.reserve(1).offset == 5);
  CHECK(g.reserve(0).offset == 6);
  CHECK(g.get().offset == 6);
}

TEST_CASE("Generator: manual_seed restarts the default stream", "[base]") {
  manual_seed(9);
  default_generator().reserve(7);
  manual_seed(9);
  CHECK(default_generator().get().seed == 9);
  CHECK(default_generator().get().offset == 0);
}
