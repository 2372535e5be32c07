// What goes out has the fields of the tensor; what comes in has the elements of the struct. Nothing
// is copied on either way.
#include <cstdint>
#include <vector>

#include "dlpack/foreign.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using io::delete_dlpack;
using io::from_dlpack;
using io::to_dlpack;

std::vector<std::int64_t> list(const Dims& d) { return {d.begin(), d.end()}; }

/// The fields of a tensor that firn has given away.
void check_fields(const DLTensor& d, const Tensor& t) {
  CHECK(d.data == (t.numel() > 0 ? t.view().data : nullptr));
  CHECK(d.byte_offset == 0);
  CHECK(static_cast<int>(d.device.device_type) == (t.device().is_cpu() ? 1 : 2));
  CHECK(d.device.device_id == t.device().index);
  const DLDataType type = type_of(t.dtype());
  CHECK(d.dtype.code == type.code);
  CHECK(d.dtype.bits == type.bits);
  CHECK(d.dtype.lanes == 1);
  REQUIRE(d.ndim == t.rank());
  CHECK(std::vector<std::int64_t>(d.shape, d.shape + d.ndim) == list(t.shape()));
  CHECK(std::vector<std::int64_t>(d.strides, d.strides + d.ndim) == list(t.strides()));
}

TEST_CASE("dlpack: a tensor goes out as it is, of every dtype and layout") {
  for (const DType dtype : kAllDTypes) {
    for (const auto& [name, t] : views_of(dtype)) {
      CAPTURE(to_string(dtype), name);
      DLManagedTensorVersioned* const m = to_dlpack(t);
      CHECK(m->version.major == 1);
      CHECK(m->flags == 0);
      check_fields(m->dl_tensor, t);
      delete_dlpack(m);
      DLManagedTensor* const old = io::to_unversioned_dlpack(t);
      check_fields(old->dl_tensor, t);
      delete_dlpack(old);
    }
  }
}

template <class Managed, class Take>
void check_taken(const std::vector<NamedView>& views, Take take) {
  for (const auto& [name, theirs] : views) {
    CAPTURE(to_string(theirs.dtype()), name);
    theirs.copy_((arange(theirs.numel(), f32) + 3).to(theirs.dtype()).reshape(theirs.shape()));
    Foreign<Managed> foreign(theirs);
    Tensor t = take(foreign.give());
    CHECK(t.dtype() == theirs.dtype());
    CHECK(t.device() == theirs.device());
    CHECK(t.shape() == theirs.shape());
    CHECK_FALSE(t.requires_grad());
    CHECK(t.storage() != theirs.storage());
    expect_same("values", values_of(t), values_of(theirs));
    if (t.numel() > 0) CHECK(t.view().data == theirs.view().data);
    // Each side sees what the other one writes.
    const std::vector<double> ones(static_cast<std::size_t>(t.numel()), 1);
    t.fill_(1);
    expect_same("written by firn", values_of(theirs), ones);
    theirs.zero_();
    expect_same("written there", values_of(t), std::vector<double>(ones.size(), 0));
    CHECK(foreign.deleted() == 0);
    t = Tensor();
    CHECK(foreign.deleted() == 1);
  }
}

TEST_CASE("dlpack: what comes in shares the memory, of every dtype and layout") {
  for (const DType dtype : kAllDTypes) {
    check_taken<DLManagedTensorVersioned>(views_of(dtype), [](auto* m) { return from_dlpack(m); });
    check_taken<DLManagedTensor>(views_of(dtype),
                                 [](auto* m) { return io::from_unversioned_dlpack(m); });
  }
}

TEST_CASE("dlpack: operations of firn read and write what came in", "[host]") {
  for (const auto& [name, theirs] : views_of(f32)) {
    CAPTURE(name);
    theirs.copy_((arange(theirs.numel(), f32) + 3).reshape(theirs.shape()));
    Foreign foreign(theirs);
    const Tensor mine = theirs.clone();
    const Tensor t = from_dlpack(foreign.give());
    expect_same("sum", values_of((t * 2 + 1).sum()), values_of((mine * 2 + 1).sum()));
    if (t.rank() > 0) expect_same("sums", values_of(t.sum({0})), values_of(mine.sum({0})));
    Tensor written = t;
    written += mine;
    expect_same("in place", values_of(theirs), values_of(mine * 2));
  }
}

TEST_CASE("dlpack: the byte offset counts, and strides may be left out") {
  const Tensor x = arange(24, f32);
  Foreign whole(x.slice(0, 5, 17));
  DLTensor& d = whole.fields();
  d.data = static_cast<char*>(d.data) - 5 * 4;
  d.byte_offset = 5 * 4;
  whole.shape = {3, 4};
  d.shape = whole.shape.data();
  d.ndim = 2;
  d.strides = nullptr;
  const Tensor t = from_dlpack(whole.give());
  CHECK(t.strides() == Strides{4, 1});
  expect_same("values", values_of(t), values_of(x.slice(0, 5, 17)));
}

TEST_CASE("dlpack: strides along which no step is taken may be anything") {
  const Tensor x = arange(6, f32);
  for (const std::int64_t odd : {std::int64_t{-1}, std::int64_t{0}, INT64_MAX, INT64_MIN}) {
    Foreign one(x);
    one.shape = {1, 6, 1};
    one.strides = {odd, 1, odd};
    one.fields().shape = one.shape.data();
    one.fields().strides = one.strides.data();
    one.fields().ndim = 3;
    const Tensor t = from_dlpack(one.give());
    CHECK(t.shape() == Shape{1, 6, 1});
    CHECK(t.is_contiguous());
    expect_same("values", values_of(t + 1), values_of(x + 1));

    Foreign none(x);
    none.shape = {4, 0};
    none.strides = {odd, odd};
    none.fields().shape = none.shape.data();
    none.fields().strides = none.strides.data();
    none.fields().ndim = 2;
    none.fields().data = nullptr;
    const Tensor empty = from_dlpack(none.give());
    CHECK(empty.shape() == Shape{4, 0});
    CHECK(values_of(empty.sum({1})) == std::vector<double>(4, 0));
  }
}

TEST_CASE("dlpack: what is read-only comes in as a copy, and goes back at once") {
  const Tensor x = arange(12, f32).reshape({3, 4});
  for (const Tensor& theirs : {x.transpose(0, 1), x[0].expand({3, 4})}) {
    const std::vector<double> before = values_of(theirs);
    Foreign foreign(theirs, kDLPackReadOnly | kDLPackIsCopied);
    const Tensor t = from_dlpack(foreign.give());
    CHECK(foreign.deleted() == 1);
    expect_same("values", values_of(t), before);
    t.fill_(7);
    expect_same("theirs", values_of(theirs), before);
  }
}

TEST_CASE("dlpack: a copy made for the consumer is shared like other memory") {
  Foreign foreign(ones({4}), kDLPackIsCopied);
  const Tensor t = from_dlpack(foreign.give());
  CHECK(t.view().data == foreign.tensor().view().data);
  CHECK(foreign.deleted() == 0);
}

TEST_CASE("dlpack: a view that repeats elements goes out read-only, and comes in as a view") {
  const Tensor x = arange(4, f32);
  const Tensor wide = x.expand({3, 4});
  DLManagedTensorVersioned* const m = to_dlpack(wide);
  CHECK(m->flags == kDLPackReadOnly);
  check_fields(m->dl_tensor, wide);
  const Tensor back = from_dlpack(m);
  CHECK(back.storage() == x.storage());
  CHECK(back.strides() == Strides{0, 1});
  CHECK_THROWS_AS(back.fill_(1), Error);
  CHECK(error_of([&] { io::to_unversioned_dlpack(wide); }).find("repeats elements") !=
        std::string::npos);

  // Another library may not say so: the elements are shared, and firn refuses to write.
  Foreign foreign(wide);
  const Tensor t = from_dlpack(foreign.give());
  expect_same("values", values_of(t), values_of(wide));
  CHECK_THROWS_AS(t.fill_(1), Error);
}

TEST_CASE("dlpack: what firn gave away comes back as a view of the same storage") {
  const Tensor x = arange(24, f32).reshape({4, 6});
  for (const Tensor& given : {x, x.slice(0, 1, 3).transpose(0, 1), x[2][3]}) {
    for (const bool versioned : {true, false}) {
      const Tensor back = versioned ? from_dlpack(to_dlpack(given))
                                    : io::from_unversioned_dlpack(io::to_unversioned_dlpack(given));
      CHECK(back.storage() == x.storage());
      CHECK(back.storage_offset() == given.storage_offset());
      CHECK(back.shape() == given.shape());
      CHECK(back.strides() == given.strides());
    }
  }
  CHECK(x.storage()->use_count() == 1);
  CHECK_FALSE(x.storage()->place_is_held());

  // If someone has marked it read-only, it is copied here too.
  DLManagedTensorVersioned* const m = to_dlpack(x);
  m->flags = kDLPackReadOnly;
  CHECK(from_dlpack(m).storage() != x.storage());
  CHECK(x.storage()->use_count() == 1);
}

TEST_CASE("dlpack: memory of the host is the CPU, also if CUDA has pinned it", "[host]") {
  for (const int type : {1, 3}) {
    Foreign foreign(arange(5, f32));
    foreign.fields().device.device_type = static_cast<DLDeviceType>(type);
    foreign.fields().device.device_id = 2;
    const Tensor t = from_dlpack(foreign.give());
    CHECK(t.device() == Device::cpu());
    CHECK(t.sum().item() == 10);
  }
}

}  // namespace
}  // namespace firn::testing
