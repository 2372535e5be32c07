// Logs of spans: one for each thread, which belongs to the session that is recorded.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "firn/runtime/spans.h"

namespace firn::runtime {

/// The spans of one thread in one session. Such logs are never destroyed, and serve other threads
/// in later sessions: a thread may come late. The caller holds the mutex: the thread itself, or at
/// the end the thread that takes the spans.
class ThreadSpans {
 public:
  ThreadSpans() = default;
  ThreadSpans(const ThreadSpans&) = delete;
  ThreadSpans& operator=(const ThreadSpans&) = delete;

  std::mutex& mutex() noexcept { return mutex_; }
  /// Makes this the log of `thread` in the session.
  void open(std::uint64_t session, std::uint32_t number, const void* thread) noexcept;
  bool is_open(std::uint64_t session, const void* thread) const noexcept {
    return session_ == session && thread_ == thread;
  }
  /// Drops its contents.
  void close() noexcept;

  /// Notes that a kernel has run whose operation is not known yet. The events are null unless they
  /// measure it.
  void wait(const SpanRecord& kernel, void* first_event, void* last_event);
  /// Gives the waiting kernels to `op`, or (null) to the operation that they know.
  void settle(const char* op);
  bool has_waiting() const noexcept { return !waiting_.empty(); }
  std::uint64_t first_start() const noexcept { return waiting_.front().record.start; }
  /// Nanoseconds of the waiting kernels.
  std::uint64_t waiting_ns() const noexcept { return waiting_ns_; }

  /// Adds a span to its total, and keeps it if there is place. Returns the place, or kNone.
  std::size_t count(SpanRecord& r);
  void lose() noexcept { ++lost_; }
  /// Moves all records into `log`, with the times on devices.
  void move_into(SpanLog& log);

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Waiting {
    SpanRecord record;
    void *first_event, *last_event;
  };
  struct Key {
    const char *name, *op;
    std::uint32_t module;
    SpanKind kind;
    bool backward;
    DType dtype;
    Device device;
    bool operator==(const Key&) const noexcept = default;
  };
  struct Hash {
    std::size_t operator()(const Key& k) const noexcept;
  };
  /// A kernel whose events have not been read.
  struct Timed {
    void *first, *last;
    Device device;
    std::size_t kept;  ///< its place in kept_, or kNone
    SpanTotal* total;
  };

  static void give_timers_back(void* first, void* last, Device device) noexcept;
  SpanTotal& total_of(const SpanRecord& r);
  std::size_t keep(const SpanRecord& r);
  void read_timers();

  std::mutex mutex_;
  std::uint64_t session_ = 0;  // 0: none
  std::uint32_t number_ = 0;
  const void* thread_ = nullptr;
  std::vector<Waiting> waiting_;
  std::uint64_t waiting_ns_ = 0;
  std::vector<SpanRecord> kept_;
  std::unordered_map<Key, SpanTotal, Hash> totals_;
  std::vector<Timed> timed_;
  std::uint64_t left_out_ = 0, lost_ = 0;
};

/// Takes a place for a span that is kept, of any thread. Returns false if there is no place left.
bool take_place() noexcept;

}  // namespace firn::runtime
