// Implements the clocks and the printed line.
#include "bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

namespace bench {
namespace {

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw firn::Error("bench", std::string(call) + " failed: " + cudaGetErrorString(status));
}

struct Event {
  Event() { check(cudaEventCreate(&handle), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() {
    check(cudaEventRecord(handle, static_cast<cudaStream_t>(stream().handle)), "cudaEventRecord");
  }
  void wait() { check(cudaEventSynchronize(handle), "cudaEventSynchronize"); }
  double us_since(const Event& start) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.handle, handle), "cudaEventElapsedTime");
    return 1e3 * static_cast<double>(ms);
  }
  cudaEvent_t handle = nullptr;
};

double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

constexpr int kWarmUp = 3;

}  // namespace

Settings& settings() {
  static Settings s;
  return s;
}

void report(const Figure& f) {
  std::vector<double> v = f.values;
  std::sort(v.begin(), v.end());
  if (v.empty()) return;
  const double median =
      v.size() % 2 == 1 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
  std::printf(
      "{\"who\": \"firn\", \"work\": \"%s\", \"mode\": \"%s\", \"dtype\": \"%s\", "
      "\"median\": %.6g, \"min\": %.6g, \"max\": %.6g, \"unit\": \"%s\", \"nodes\": %lld, "
      "\"bytes\": %.8g, \"flop\": %.8g}\n",
      f.work.c_str(), f.mode.c_str(), f.dtype.c_str(), median, v.front(), v.back(), f.unit,
      static_cast<long long>(f.nodes), f.bytes, f.flop);
  std::fflush(stdout);
}

std::vector<double> device_us(const std::function<void()>& call) {
  const Settings& s = settings();
  for (int i = 0; i < (s.smoke ? 1 : kWarmUp); ++i) call();
  firn::synchronize(kDevice);
  Event start, stop;
  const auto window = [&](int calls) {
    start.record();
    for (int i = 0; i < calls; ++i) call();
    stop.record();
    stop.wait();
    return stop.us_since(start);
  };
  if (s.smoke) return {window(1)};
  int calls = 1;
  for (double took = window(1); took < 1e3 * s.window_ms && calls < (1 << 20);) {
    const double missing = 1.1e3 * s.window_ms / std::max(took, 1.0);
    calls = static_cast<int>(std::ceil(calls * std::clamp(missing, 1.1, 100.0)));
    took = window(calls);
  }
  std::vector<double> values;
  for (int w = 0; w < s.windows; ++w) values.push_back(window(calls) / calls);
  return values;
}

std::vector<double> marked_us(const std::function<void(const std::function<void()>& begin,
                                                       const std::function<void()>& end)>& call) {
  const Settings& s = settings();
  const int calls = s.smoke ? 1 : 10;
  const int windows = s.smoke ? 1 : s.windows;
  for (int i = 0; i < (s.smoke ? 1 : kWarmUp); ++i) call([] {}, [] {});
  firn::synchronize(kDevice);
  std::vector<double> values;
  std::vector<std::unique_ptr<Event>> begins, ends;
  for (int i = 0; i < calls; ++i) {
    begins.push_back(std::make_unique<Event>());
    ends.push_back(std::make_unique<Event>());
  }
  for (int w = 0; w < windows; ++w) {
    double sum = 0;
    for (std::size_t i = 0; i < begins.size(); ++i)
      call([&] { begins[i]->record(); }, [&] { ends[i]->record(); });
    firn::synchronize(kDevice);
    for (std::size_t i = 0; i < begins.size(); ++i) sum += ends[i]->us_since(*begins[i]);
    values.push_back(sum / calls);
  }
  return values;
}

std::vector<double> host_ns(const std::function<void()>& call) {
  const Settings& s = settings();
  const int calls = s.smoke ? 1 : 20;  // a driver queues about a thousand launches before it waits
  for (int i = 0; i < calls; ++i) call();
  std::vector<double> values;
  for (int w = 0; w < (s.smoke ? 1 : 20 * s.windows); ++w) {
    firn::synchronize(kDevice);
    const double start = seconds();
    for (int i = 0; i < calls; ++i) call();
    values.push_back((seconds() - start) / calls * 1e9);
  }
  firn::synchronize(kDevice);
  return values;
}

firn::Tensor random(const firn::Shape& shape, firn::DType dtype) {
  static firn::Generator generator(7);
  return firn::rand(shape, {.low = -1, .dtype = dtype, .device = kDevice, .generator = &generator});
}

}  // namespace bench
