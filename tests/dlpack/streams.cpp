// Two libraries on two streams of a device: each sees what the other one has queued before the
// tensor changed hands, in every order that streams and events allow. The host does not wait.
#ifdef FIRN_HAS_CUSIM
#include <vector>

#include "dlpack/foreign.h"
#include "firn/runtime/kernel_support.h"
#include "support/catch.h"
#include "support/device/simulator.h"

namespace firn::testing {
namespace {

using io::delete_dlpack;
using io::from_dlpack;
using io::to_dlpack;

constexpr int kOrders = 20;
constexpr std::int64_t kSize = 3000;

/// The other library's stream: one of its own, or CUDA's default stream.
struct There {
  explicit There(bool own) : side(default_device()) {
    stream = own ? side.get() : Stream{default_device(), nullptr};
  }
  SideStream side;
  Stream stream;
};

Tensor all(double value) { return full({kSize}, value, f32); }
bool all_are(const Tensor& t, double value) {
  return values_of(t) == std::vector<double>(static_cast<std::size_t>(kSize), value);
}

/// Calls check(there, i), which queues work, many times.
template <class Check>
void in_every_order(Check&& check) {
  const LazyStreams lazy;
  for (const bool own : {true, false}) {
    const There there(own);
    for (int i = 1; i <= kOrders; ++i) {
      CAPTURE(own, i);
      check(there.stream, i);
      synchronize(default_device());
    }
  }
}

TEST_CASE("dlpack: the other library sees what firn has queued", "[gpu]") {
  in_every_order([](Stream there, int i) {
    const Tensor x = all(0), y = all(0);
    synchronize(default_device());
    const auto waits = host_waits();
    x.fill_(i);
    DLManagedTensorVersioned* const m = to_dlpack(x, there.handle);
    {
      const StreamScope scope(there);
      copy_bytes(y.mutable_view().data, y.device(), m->dl_tensor.data, x.device(), x.bytes());
    }
    delete_dlpack(m);  // firn's later work comes after the other library's
    x.fill_(-1);
    CHECK(host_waits() == waits);
    CHECK(all_are(y, i));
  });
}

TEST_CASE("dlpack: memory that was given away is not used anew before the other library is done",
          "[gpu]") {
  in_every_order([](Stream there, int i) {
    Tensor x = all(i);
    const Tensor y = all(0);
    synchronize(default_device());
    const void* const place = x.view().data;
    DLManagedTensorVersioned* const m = to_dlpack(x, there.handle);
    x = Tensor();
    {
      const StreamScope scope(there);
      copy_bytes(y.mutable_view().data, y.device(), m->dl_tensor.data, y.device(), y.bytes());
    }
    delete_dlpack(m);
    const Tensor z = all(-1);
    CHECK(z.view().data == place);
    CHECK(all_are(y, i));
    CHECK(all_are(z, -1));
  });
}

TEST_CASE("dlpack: the same if a thread on another stream of firn's calls the deleter", "[gpu]") {
  const SideStream third(default_device());
  in_every_order([&](Stream there, int i) {
    Tensor x = all(i);
    const Tensor y = all(0);
    synchronize(default_device());
    const void* const place = x.view().data;
    DLManagedTensorVersioned* const m = to_dlpack(x, there.handle);
    x = Tensor();
    {
      const StreamScope scope(there);
      copy_bytes(y.mutable_view().data, y.device(), m->dl_tensor.data, y.device(), y.bytes());
    }
    {
      const StreamScope scope(third);
      delete_dlpack(m);
    }
    const Tensor z = all(-1);
    CHECK(z.view().data == place);
    synchronize(there);
    CHECK(all_are(y, i));
    CHECK(all_are(z, -1));
  });
}

TEST_CASE("dlpack: firn sees what the other library has queued, and the other way round at the end",
          "[gpu]") {
  in_every_order([](Stream there, int i) {
    Foreign foreign(all(0));
    const Tensor& theirs = foreign.tensor();
    synchronize(default_device());
    const auto waits = host_waits();
    {
      const StreamScope scope(there);
      theirs.fill_(i);
    }
    Tensor t = from_dlpack(foreign.give(), there.handle);
    const Tensor mine = t + 1;
    t = Tensor();
    CHECK(foreign.deleted() == 1);
    {
      const StreamScope scope(there);
      theirs.fill_(-1);  // as if it were a new tensor
    }
    CHECK(host_waits() == waits);
    CHECK(all_are(mine, i + 1));
    synchronize(there);
    CHECK(all_are(theirs, -1));
  });
}

TEST_CASE("dlpack: a read-only tensor is copied before it goes back", "[gpu]") {
  in_every_order([](Stream there, int i) {
    Foreign foreign(all(0), kDLPackReadOnly);
    const Tensor& theirs = foreign.tensor();
    synchronize(default_device());
    {
      const StreamScope scope(there);
      theirs.fill_(i);
    }
    const Tensor t = from_dlpack(foreign.give(), there.handle);
    CHECK(foreign.deleted() == 1);
    {
      const StreamScope scope(there);
      theirs.fill_(-1);
    }
    CHECK(all_are(t, i));
  });
}

TEST_CASE("dlpack: if CUDA refuses the order of streams, nothing has changed hands", "[gpu]") {
  const There there(true);
  const Tensor x = all(1);
  for (std::uint64_t k = 0; k < 3; ++k) {
    CAPTURE(k);
    Foreign foreign(x);
    synchronize(default_device());
    {
      const FailCall fail(k);
      CHECK_THROWS_AS(to_dlpack(x, there.stream.handle), Error);
      CHECK(fail.happened());
    }
    CHECK_FALSE(x.storage()->place_is_held());
    {
      const FailCall fail(k);
      CHECK_THROWS_AS(from_dlpack(foreign.give(), there.stream.handle), Error);
    }
    CHECK(foreign.deleted() == 0);
  }
  CHECK(from_dlpack(to_dlpack(x, there.stream.handle), there.stream.handle).storage() ==
        x.storage());
}

}  // namespace
}  // namespace firn::testing
#endif
