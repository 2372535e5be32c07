// Streams, events, copies, and what memory does across streams.
#include <chrono>
#include <cstring>
#include <thread>

#include "firn/firn.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "runtime/memory/allocator.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

constexpr int kOrders = 50;

Tensor filled(double value, std::int64_t n = 300) { return full({n}, value, f32); }

bool all_are(const Tensor& x, double value) {
  const auto values = values_of(x);
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == value; });
}

}  // namespace

TEST_CASE("streams: on the CPU they are names, and nothing waits", "[memory]") {
  const Stream s = current_stream(Device::cpu());
  CHECK(s == Stream{});
  const SideStream side(Device::cpu());
  CHECK(side.get() == s);
  Event e;
  e.record(side);
  e.block(s);
  e.synchronize();
  synchronize(Device::cpu());
  synchronize(s);
  const PinnedMemory from(10), to(10);
  std::memcpy(from.data(), "pinned me", 10);
  copy_bytes_async(to.data(), Device::cpu(), from.data(), Device::cpu(), 10);
  CHECK(std::string(static_cast<const char*>(to.data())) == "pinned me");
  CHECK(from.bytes() == 10);
}

TEST_CASE("streams: what a machine without devices says, and how fast", "[memory][start]") {
  const auto start = std::chrono::steady_clock::now();
  const int devices = cuda_device_count();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() < 1.0);
  const Device missing = Device::cuda(devices);
  const std::string e = error_of([&] { empty({1}, f32, missing); });
  INFO(e);
  if (devices > 0) {
    CHECK(e.find("does not exist: this machine has") != std::string::npos);
  } else if (!built_with_cuda()) {
    CHECK(e.find("built without CUDA; hint: build with -DFIRN_CUDA=ON") != std::string::npos);
  } else {
    const bool no_driver = e.find("no NVIDIA driver was found") != std::string::npos &&
                           e.find("answered 35") != std::string::npos;
    const bool no_device = e.find("the NVIDIA driver finds no device") != std::string::npos;
    CHECK((no_driver || no_device));
    CHECK(e.find("hint: ") != std::string::npos);
  }
  CHECK_THROWS_AS(synchronize(missing), DeviceError);
  CHECK_THROWS_AS(current_stream(missing), DeviceError);
  CHECK_THROWS_AS(SideStream(missing), DeviceError);
  CHECK_THROWS_AS(memory_stats(missing), DeviceError);
  CHECK(cuda_device_count() == devices);
}

TEST_CASE("streams: one for each device, or what a scope says", "[memory][gpu]") {
  const Device d = default_device();
  const Stream main = current_stream(d);
  REQUIRE(main.handle != nullptr);
  CHECK(current_stream(d) == main);
  const auto of_another_thread = [&] {
    Stream stream;
    std::thread([&] { stream = current_stream(d); }).join();
    return stream;
  };
  CHECK(of_another_thread() == main);
  void* first = nullptr;
  {
    const SideStream side(d), other(d);
    CHECK_FALSE(side.get() == main);
    CHECK_FALSE(side.get() == other.get());
    first = side.get().handle;
    {
      const StreamScope scope(side);
      CHECK(current_stream(d) == side);
      {
        const StreamScope inner(main);
        CHECK(current_stream(d) == main);
      }
      CHECK(current_stream(d) == side);
      CHECK(of_another_thread() == main);
    }
    CHECK(current_stream(d) == main);
  }
  const SideStream again(d), another(d);  // streams are kept, blocks may belong to them
  CHECK((again.get().handle == first || another.get().handle == first));
}

TEST_CASE("streams: the host waits where it reads from the device, and only there",
          "[memory][gpu]") {
  std::vector<float> host(1000, 3);
  const auto before = host_waits();
  Tensor x = tensor<float>(host, {1000});
  std::fill(host.begin(), host.end(), -1.0f);  // the copy is taken when the call returns
  const Tensor y = zeros({1000}), z = clone(x);
  fill_(y, 2);
  add_(x, y);
  const Tensor w = x * z;
  CHECK(host_waits() == before);
  CHECK(all_are(w, 15));
  CHECK(host_waits() == before + 1);
  synchronize(default_device());
  synchronize(current_stream(default_device()));
  CHECK(host_waits() == before + 3);
  CHECK(w[3].item() == 15);
  CHECK(host_waits() == before + 4);
}

TEST_CASE("streams: views are read from the device as they are", "[memory]") {
  const Tensor x = reshape(arange(60, f32), {3, 4, 5});
  const Tensor middle = slice(slice(x, 1, 1, 3), 2, 0, 5, 2);  // [3, 2, 3]
  CHECK(values_of(slice(middle, 0, 2, 3)) == std::vector<double>{45, 47, 49, 50, 52, 54});
  CHECK(transpose(x, 0, 2)[4][1][2].item() == 49);
  CHECK(values_of(expand(select(slice(x, 2, 4, 5), 0, 1), {4, 2})) ==
        std::vector<double>{24, 24, 29, 29, 34, 34, 39, 39});
  CHECK(values_of(slice(x, 0, 1, 1)).empty());
  CHECK(x[2][3][4].item() == 59);
}

TEST_CASE("streams: pinned memory is copied without waiting", "[memory][gpu]") {
  const Device d = default_device(), cpu = Device::cpu();
  PinnedMemory from(4000), to(4000);
  auto* f = static_cast<float*>(from.data());
  CHECK(f[999] == 0);
  for (int i = 0; i < 1000; ++i) f[i] = static_cast<float>(i);
  const Tensor x = empty({1000});
  const auto before = host_waits();
  copy_bytes_async(x.storage()->data(), d, f, cpu, 4000);
  const Tensor y = x + x;
  copy_bytes_async(to.data(), cpu, y.storage()->data(), d, 4000);
  Event done;
  done.record(current_stream(d));
  CHECK(host_waits() == before);
  done.synchronize();
  CHECK(host_waits() == before + 1);
  CHECK(static_cast<float*>(to.data())[999] == 1998);

  // copy_bytes leaves the source free at once, so it waits.
  copy_bytes(x.storage()->data(), d, f, cpu, 4000);
  CHECK(host_waits() == before + 2);

  std::vector<float> pageable(1000);
  const auto refused =
      error_of([&] { copy_bytes_async(x.storage()->data(), d, pageable.data(), cpu, 4000); });
  CHECK(refused.find("not pinned; hint: use PinnedMemory") != std::string::npos);
}

TEST_CASE("streams: what a kernel notes is thrown where the host waits, once", "[memory][gpu]") {
  const Device d = default_device();
  runtime::Fault* record = runtime::fault_record(d);
  CHECK(record == runtime::fault_record(d));
  const auto raise = [&] { *record = {runtime::Fault::kComplete, "gather", "index", 7, 12, 10}; };
  const Tensor x = filled(1);
  raise();
  const auto e = error_of([&] { x.sum().item(); });
  CHECK(e.find("[gather] index 12 at position 7 is not in [0, 10), found on " + to_string(d)) == 0);
  CHECK(x.sum().item() == 300);
  raise();
  CHECK_THROWS_AS(synchronize(d), Error);
  CHECK_NOTHROW(synchronize(d));
  raise();
  Event mark;
  mark.record(current_stream(d));
  CHECK_THROWS_AS(mark.synchronize(), Error);
  record->raised = runtime::Fault::kClaimed;  // somebody is writing
  CHECK_NOTHROW(synchronize(d));
  record->raised = runtime::Fault::kNone;
}

TEST_CASE("streams: a released block serves its own stream only, and nobody waits",
          "[memory][gpu]") {
  const Device d = default_device();
  const SideStream side(d);
  const std::int64_t n = 77777;  // a size that no other test has left behind
  const auto waits = host_waits();
  const void* block = nullptr;
  {
    const Tensor a = empty({n});
    block = a.storage()->data();
  }
  {
    const StreamScope scope(side);
    const Tensor b = empty({n});
    CHECK(b.storage()->data() != block);
    const Tensor c = empty({n});
    CHECK(c.storage()->data() != block);
  }
  const auto before = memory_stats(d);
  const Tensor a = empty({n});
  CHECK(a.storage()->data() == block);
  CHECK(memory_stats(d).system_allocations == before.system_allocations);
  CHECK(host_waits() == waits);
}

TEST_CASE("streams: copies between devices come after and before the work of both",
          "[memory][gpu]") {
  if (cuda_device_count() < 2) return;
  const Device a = Device::cuda(0), b = Device::cuda(1);
#ifdef FIRN_HAS_CUSIM
  const firn::testing::LazyStreams lazy;
#endif
  const Tensor x = full({500}, 0, f32, a), y = full({500}, 0, f32, b);
  for (int i = 0; i < kOrders; ++i) {
    const auto waits = host_waits();
    fill_(x, i);
    const Tensor there = to_device(x, b);
    fill_(x, -1);
    copy_(y, there);
    const Tensor back = to_device(y, a);
    fill_(y, -2);
    CHECK(host_waits() == waits);
    CHECK(all_are(back, i));
    CHECK(all_are(there, i));
  }
  CHECK(all_are(to_device(x, Device::cpu()), -1));
}

#ifdef FIRN_HAS_CUSIM
using firn::testing::LazyStreams;

TEST_CASE("streams: events order what two streams do, in every order", "[memory][gpu]") {
  const Device d = default_device();
  const SideStream side(d);
  const LazyStreams lazy;
  int stale = 0;
  for (int i = 0; i < kOrders; ++i) {
    for (const bool with_events : {true, false}) {
      const Tensor x = filled(1), y = filled(0);
      Event ready, done;
      synchronize(d);
      fill_(x, 2 + i);
      ready.record(current_stream(d));
      {
        const StreamScope scope(side);
        if (with_events) ready.block(side);
        copy_(y, x);
        done.record(side);
      }
      if (with_events) done.block(current_stream(d));
      fill_(x, -1);
      const bool right = all_are(y, 2 + i);
      if (with_events) CHECK(right);
      if (!with_events && !right) ++stale;
      synchronize(d);
    }
  }
  CHECK(stale > 0);  // the orders do show a missing event
}

TEST_CASE("streams: memory used on another stream is not reused too early, in every order",
          "[memory][gpu]") {
  const Device d = default_device();
  const SideStream side(d);
  const LazyStreams lazy;
  int overwritten = 0;
  for (int i = 0; i < kOrders; ++i) {
    for (const bool recorded : {true, false}) {
      Tensor x = filled(5, 5000), y = filled(0, 5000);
      synchronize(d);
      const void* block = x.storage()->data();
      {
        const StreamScope scope(side);
        copy_(y, x);
      }
      if (recorded) x.storage()->record_use(side);
      const auto waits = host_waits();
      x = Tensor();
      const Tensor z = filled(9, 5000);
      CHECK(z.storage()->data() == block);
      CHECK(host_waits() == waits);
      synchronize(side);
      const bool right = all_are(y, 5);
      if (recorded) CHECK(right);
      if (!recorded && !right) ++overwritten;
      synchronize(d);
      CHECK(all_are(z, 9));
    }
  }
  CHECK(overwritten > 0);
}

TEST_CASE("streams: views and moved storages know their memory's users", "[memory][gpu]") {
  const Device d = default_device();
  const SideStream side(d);
  const LazyStreams lazy;
  for (int i = 0; i < kOrders; ++i) {
    auto block = Storage::allocate(40000, d);
    auto part = Storage::part_of(block, 20000, 20000);
    const void* place = block->data();
    zero_bytes(part->data(), d, 20000);
    std::vector<char> got(20000, 1);
    Event zeroed;
    zeroed.record(current_stream(d));
    const Tensor seen = empty({5000});
    {
      const StreamScope scope(side);
      zeroed.block(side);
      copy_bytes(seen.storage()->data(), d, part->data(), d, 20000);
    }
    part->record_use(side);
    part = nullptr;
    block = nullptr;
    const Tensor other = filled(1, 10000);
    CHECK(other.storage()->data() == place);
    synchronize(side);
    CHECK(all_are(seen, 0));
  }
}
#endif
