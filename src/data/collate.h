// Functions that collate(), collate_padded(), data sets and loaders share.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/op_mode.h"
#include "firn/autograd.h"
#include "firn/data/dataset.h"
#include "firn/memory.h"

namespace firn::data {

/// While it exists, this thread has the modes that samples expect, for any modes of the caller. Its
/// default device is the CPU, it has no autograd, autocast or listeners, and memory is accounted to
/// Owner::data.
class Surroundings {
 public:
  Surroundings() noexcept : owner_(Owner::data), host_(Device::cpu()) {}

 private:
  autograd::OpMode::Plain plain_;
  NoGrad no_grad_;
  OwnerScope owner_;
  DeviceScope host_;
};

/// Makes the batch of `samples`: see collate() and collate_padded(). Errors carry the name `op`,
/// and call sample i by ids[i], or by i if `ids` is empty.
Sample collate_samples(const char* op, std::span<const Sample> samples, bool padded,
                       std::span<const std::int64_t> ids);

/// Runs fn(), which makes sample `index`. Passes on OutOfMemory, and throws SampleError for every
/// other exception.
template <class Fn>
Sample make_sample(std::int64_t index, Fn&& fn) {
  try {
    return fn();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const SampleError& e) {
    if (e.index() == index) throw;
    throw e.renumbered(index);
  } catch (const std::exception& e) {
    throw SampleError(index, e.what());
  } catch (...) {
    throw SampleError(index, "the exception is no std::exception");
  }
}

/// Calls take(index) of `source`, with default_generator() as DatasetSource promises.
Sample take_sample(const DatasetSource& source, std::int64_t index, const DrawContext& context);

}  // namespace firn::data
