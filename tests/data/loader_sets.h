// Sets for the tests of loaders, and a hash of what a loader delivers.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "firn/firn.h"

namespace firn::test {

/// x f32 [n, 3] and y i64 [n] on the CPU: x[i][j] is 10 i + j, y[i] is i.
inline std::vector<Tensor> numbered_fields(std::int64_t n) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < n; ++i) {
    for (int j = 0; j < 3; ++j) x.push_back(static_cast<float>(10 * i + j));
    y.push_back(i);
  }
  return {tensor(x, {n, 3}, Device::cpu()), tensor(y, {n}, Device::cpu())};
}

inline data::TensorDataset numbered_set(std::int64_t n) {
  return data::TensorDataset(numbered_fields(n));
}

/// The numbered set with noise on x that each sample draws.
inline data::Map noisy_set(std::int64_t n) {
  return {numbered_set(n), [](data::Sample s, Generator& g) {
            s[0] = s[0] + rand({3}, {.generator = &g}) + rand({3});
            return s;
          }};
}

/// The numbered set of which the given samples throw. With `slow`, each takes some time, and not
/// the same.
inline data::Dataset bad_set(std::int64_t n, std::vector<std::int64_t> bad, bool slow = false) {
  return {n, [=](std::int64_t i) -> data::Sample {
            if (slow) std::this_thread::sleep_for(std::chrono::microseconds(i % 3 * 500));
            for (const std::int64_t b : bad)
              if (i == b) throw std::runtime_error("cannot read file " + std::to_string(i));
            return {full({3}, static_cast<double>(i), f32), full({}, static_cast<double>(i), i64)};
          }};
}

/// FNV-1a over ids, shapes and bytes.
class Hash {
 public:
  void add(const Tensor& t) {
    const Tensor host = t.to(Device::cpu()).contiguous();
    for (const std::int64_t size : host.shape()) add(&size, sizeof size);
    if (host.bytes() > 0) add(host.view().data, host.bytes());
  }
  void add(const data::LoaderBatch& batch) {
    add(batch.ids);
    for (const Tensor& field : batch.fields) add(field);
  }
  std::uint64_t value() const { return value_; }

 private:
  void add(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) value_ = (value_ ^ p[i]) * 0x100000001b3u;
  }
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// The hash of the rest of an epoch.
inline std::uint64_t hash_of(data::Loader& loader, std::int64_t epoch) {
  Hash hash;
  for (const auto& batch : loader.epoch(epoch)) hash.add(batch);
  return hash.value();
}

/// The ids of the rest of an epoch.
inline std::vector<std::int64_t> ids_of(data::Loader& loader, std::int64_t epoch) {
  std::vector<std::int64_t> ids;
  for (const auto& batch : loader.epoch(epoch))
    for (const std::int64_t id : batch.ids.to_vector<std::int64_t>()) ids.push_back(id);
  return ids;
}

}  // namespace firn::test
