// Measures what the machine can do, for comparison with firn: bytes through memory and the caches,
// and fused multiply-adds in f32. It uses loops without a library, on its own threads.
#pragma once

#if defined(__SSE__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace bench {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
typedef float Vector __attribute__((vector_size(kVectorBytes)));
inline constexpr std::int64_t kVectorFloats = kVectorBytes / 4;

inline Vector load(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

/// Stores past the caches, if the processor has such a store and `p` is aligned to a vector.
#if defined(__SSE__)
inline constexpr bool kCanStream = true;
inline void stream(float* p, Vector v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, v);
#elif defined(__AVX__)
  _mm256_stream_ps(p, v);
#else
  _mm_stream_ps(p, v);
#endif
}
inline void stream_fence() { _mm_sfence(); }
#else
inline constexpr bool kCanStream = false;
inline void stream(float* p, Vector v) { store(p, v); }
inline void stream_fence() {}
#endif

/// Threads that wait for the next function to call; the caller is the first thread.
class Team {
 public:
  explicit Team(int threads) : begin_(threads), end_(threads) {
    for (int t = 1; t < threads; ++t)
      others_.emplace_back([this, t] {
        for (;;) {
          begin_.arrive_and_wait();
          if (!work_) return;
          (*work_)(t);
          end_.arrive_and_wait();
        }
      });
  }
  ~Team() {
    work_ = nullptr;
    begin_.arrive_and_wait();
    for (auto& t : others_) t.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(others_.size()) + 1; }
  /// Calls work(thread) on each thread; returns when all are done.
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    begin_.arrive_and_wait();
    work(0);
    end_.arrive_and_wait();
  }

 private:
  std::barrier<> begin_, end_;
  const std::function<void(int)>* work_ = nullptr;
  std::vector<std::thread> others_;
};

/// The vectors [first, last) of `count` for thread `t` of `threads`.
struct Share {
  std::int64_t first, last;
  Share(std::int64_t count, int t, int threads)
      : first(count * t / threads), last(count * (t + 1) / threads) {}
};

/// Copies from to to. An asm statement keeps the loop, since the compiler would call memcpy, which
/// streams.
inline void copy_vectors(float* to, const float* from, Share s) {
  for (std::int64_t i = s.first; i < s.last; ++i) {
    store(to + i * kVectorFloats, load(from + i * kVectorFloats));
    asm volatile("" ::: "memory");
  }
}

/// Computes a = b + s c.
template <bool kStream>
inline void triad_vectors(float* a, const float* b, const float* c, float s, Share part) {
  for (std::int64_t i = part.first; i < part.last; ++i) {
    const std::int64_t at = i * kVectorFloats;
    const Vector v = load(b + at) + s * load(c + at);
    kStream ? stream(a + at, v) : store(a + at, v);
  }
  if (kStream) stream_fence();
}

/// Computes `rounds` times 12 independent fused multiply-adds of a vector; the result keeps them
/// alive. Twelve chains hide the latency of two units at 4 to 6 cycles.
inline float multiply_add(std::int64_t rounds) {
  constexpr int kChains = 12;
  volatile float near_one = 0.999f, little = 1e-3f;
  const Vector b = near_one - Vector{}, c = little - Vector{};
  Vector a[kChains];
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) a[j] = b * static_cast<float>(j);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) a[j] = a[j] * b + c;
  }
  float sum = 0;
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) sum += a[j][0];
  return sum;
}
inline double multiply_add_flops(std::int64_t rounds) {
  return 2.0 * 12 * static_cast<double>(kVectorFloats * rounds);
}

}  // namespace bench
