// Helpers of the simulator's tests: Catch2, vectors on the device, settings that go back
// afterwards.
#pragma once

#include <string>
#include <vector>

#include "cusim.h"
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

/// The substring matcher under one name in Catch2 2 and 3.
inline auto contains(const std::string& text) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(text);
#else
  return Catch::Matchers::Contains(text);
#endif
}

/// A fresh simulator with default settings, and one after.
struct Fresh {
  Fresh() : settings(cusim::config()) { restart(); }
  ~Fresh() { restart(); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;

 private:
  void restart() {
    cusim::config() = settings;
    cusim::reset();
  }
  cusim::Config settings;
};

/// The values in device memory, freed by cusim::reset().
template <class T>
T* on_device(const std::vector<T>& values) {
  void* p = nullptr;
  const std::size_t bytes = values.size() * sizeof(T);
  REQUIRE(cudaMalloc(&p, bytes) == cudaSuccess);
  REQUIRE(cudaMemcpy(p, values.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  return static_cast<T*>(p);
}

template <class T>
std::vector<T> on_host(const T* p, std::size_t n) {
  std::vector<T> values(n);
  REQUIRE(cudaMemcpy(values.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
  return values;
}
