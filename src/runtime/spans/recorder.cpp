// Spans as they begin and end, and the session in which they are recorded.
#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/immortal.h"
#include "base/thread/fork.h"
#include "firn/memory.h"
#include "firn/memory/labels.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "runtime/cuda/cuda.h"
#include "runtime/spans/recorder.h"

namespace firn::runtime {

constinit std::atomic<bool> detail::spans_on{false};

namespace {

constexpr const char* kOp = "spans";

std::mutex& names_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::uint64_t now() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

/// State that all threads share.
struct Session {
  std::mutex mutex;
  std::atomic<std::uint64_t> number{0};  // number of the session that is recorded, or was last
  std::uint64_t start = 0;
  std::vector<std::unique_ptr<ThreadSpans>> threads;  // the first `used` are of this session
  std::size_t used = 0;
  std::atomic<std::int64_t> places{0};  // left for spans to be kept
  std::atomic<bool> nvtx{false};
  struct Counter {
    const char* name;
    std::uint64_t time;
    std::function<double()> value;
  };
  std::vector<Counter> counters;
  std::uint64_t lost = 0, left_out = 0;
};
Session& session() noexcept {
  static Immortal<Session> s;
  return s.get();
}

std::mutex& session_mutex() { return session().mutex; }
[[maybe_unused]] const bool survives_fork = (hold_during_fork<session_mutex>(), true);

/// Spans of one thread.
struct OfThread {
  Span* innermost = nullptr;
  ThreadSpans* log = nullptr;  ///< the log that was opened for the session
  std::uint64_t session = 0;
  Device last_device = Device::cpu();  ///< device of its last kernel
};
thread_local constinit OfThread of_thread;
/// An address that tells threads apart.
const void* this_thread() noexcept { return &of_thread; }

/// Opens a log for this thread; the caller holds the session's mutex.
void open_own(Session& s, std::uint64_t number) {
  if (s.used == s.threads.size()) s.threads.push_back(std::make_unique<ThreadSpans>());
  ThreadSpans& next = *s.threads[s.used];
  const std::lock_guard lock(next.mutex());
  next.open(number, static_cast<std::uint32_t>(s.used++), this_thread());
  of_thread.log = &next;
  of_thread.session = number;
}

/// Runs `write` on this thread's log, unless session `number` has ended.
template <class Write>
void write_own(std::uint64_t number, const Write& write) noexcept {
  if (of_thread.session != number) {
    Session& s = session();
    const std::lock_guard lock(s.mutex);
    if (!recording_spans() || s.number.load() != number) return;
    try {
      open_own(s, number);
    } catch (...) {
      ++s.lost;
      return;
    }
  }
  const std::lock_guard lock(of_thread.log->mutex());
  if (!of_thread.log->is_open(number, this_thread())) return;
  try {
    write(*of_thread.log);
  } catch (...) {
    of_thread.log->lose();
  }
}

std::int64_t memory_in_use(Device device) noexcept try {
  return static_cast<std::int64_t>(memory_stats(device).total.current);
} catch (...) {
  return -1;
}

}  // namespace

const char* to_string(SpanKind kind) noexcept {
  constexpr const char* names[] = {"phase", "module", "operation", "gradient", "kernel"};
  return names[static_cast<std::size_t>(kind)];
}

bool take_place() noexcept { return session().places.fetch_sub(1, std::memory_order_relaxed) > 0; }

/// The span of a Range. It belongs to its thread's chain of spans, and the Range points at it. The
/// last of the two to end deletes it.
class OpenRange {
 public:
  enum class State : std::uint8_t {
    open,
    ended,  ///< the Range has ended, and the span waits in its chain for those above it
    cut     ///< it is in no chain: a span below it has ended
  };
  explicit OpenRange(const char* name) noexcept : span_(SpanKind::phase, name) {
    span_.of_range_ = true;
  }
  /// The range that has this span.
  static OpenRange* of(Span* span) noexcept {
    return reinterpret_cast<OpenRange*>(span);  // its first member
  }
  Span& span() noexcept { return span_; }
  const void* thread() const noexcept { return thread_; }
  State state() const noexcept { return state_.load(); }
  State exchange(State state) noexcept { return state_.exchange(state); }
  /// Deletes the range without a record.
  void discard() noexcept {
    span_.on_ = false;
    delete this;
  }

 private:
  Span span_;
  const void* thread_ = this_thread();
  std::atomic<State> state_{State::open};
};

/// Functions that see the private parts of spans.
class SpanRecorder {
 public:
  /// Returns the innermost span around `s` of a kind that is an operation, or null.
  static const char* operation_around(const Span& s) noexcept {
    for (const Span* o = s.outer_; o; o = o->outer_)
      if (o->kind_ == SpanKind::operation || o->kind_ == SpanKind::gradient) return o->name_;
    return nullptr;
  }
  /// Returns true within a backward function, except where a checkpoint computes again.
  static bool is_backward(const Span* s) noexcept {
    for (; s && s->kind_ != SpanKind::gradient; s = s->outer_)
      if (s->name_ == kRecomputePhase) return false;
    return s != nullptr;
  }
  static bool is_again(const Span& s) noexcept {
    for (const Span* o = s.outer_; o; o = o->outer_)
      if (o->kind_ == s.kind_ && o->name_ == s.name_ && o->module_ == s.module_) return true;
    return false;
  }
  static bool is_kernel(const Span* s) noexcept { return s && s->kind_ == SpanKind::kernel; }
  static void add_inside(Span* s, std::uint64_t session, std::uint64_t ns) noexcept {
    if (s && s->session_ == session) s->inside_ += ns;
  }
  /// Takes the innermost span out of the chain. Its time within then counts for the one around it.
  static void leave_out() noexcept {
    Span* const s = std::exchange(of_thread.innermost, of_thread.innermost->outer_);
    add_inside(s->outer_, s->session_, s->inside_);
    OpenRange* const range = OpenRange::of(s);
    if (range->exchange(OpenRange::State::cut) == OpenRange::State::ended) range->discard();
  }
  /// Makes `s` the innermost span of this thread. Returns false if it is not in this thread's
  /// chain.
  static bool uncover(Span* s) noexcept {
    const Span* in = of_thread.innermost;
    while (in && in != s) {
      if (!in->of_range_) return false;  // spans of the library end in order
      in = in->outer_;
    }
    if (!in) return false;
    while (of_thread.innermost != s) leave_out();
    return true;
  }
  /// Drops ranges that have ended before those above them did.
  static void drop_ended() noexcept {
    while (of_thread.innermost && of_thread.innermost->of_range_ &&
           OpenRange::of(of_thread.innermost)->state() == OpenRange::State::ended)
      leave_out();
  }
  static bool is_innermost(const Span& s) noexcept { return of_thread.innermost == &s; }
};

OpenRange* open_range(std::string_view name) noexcept try {
  return new OpenRange(keep_name(name));
} catch (...) {
  return nullptr;
}

void end_range(OpenRange* range) noexcept {
  if (!range->span().on()) return delete range;  // a dry run
  const bool own_thread = range->thread() == this_thread();
  if (own_thread && SpanRecorder::is_innermost(range->span())) {
    delete range;  // its span ends
    return SpanRecorder::drop_ended();
  }
  if (range->exchange(OpenRange::State::ended) == OpenRange::State::cut) range->discard();
}

void Span::begin(SpanKind kind, const char* name, std::uint32_t module) noexcept {
  if (dry_run()) return;
  // Kernels that a kernel calls are its own work.
  if (kind == SpanKind::kernel && SpanRecorder::is_kernel(of_thread.innermost)) return;
  session_ = session().number.load(std::memory_order_acquire);
  kind_ = kind;
  name_ = name;
  module_ = module != 0 ? module : thread_context.labels.module;
  dtype_ = f32;
  device_ = Device::cpu();
  of_range_ = false;
  inside_ = 0;
  work_ = {};
  first_event_ = last_event_ = stream_ = nullptr;
  outer_ = std::exchange(of_thread.innermost, this);
  on_ = true;
  if (kind != SpanKind::kernel &&
      of_thread.session == session_)  // kernels that ran before have no operation
    write_own(session_, [](ThreadSpans& t) { t.settle(nullptr); });
  if constexpr (kHasCuda) {
    if (session().nvtx.load(std::memory_order_relaxed)) {
      const std::string_view path = module_path(module_);
      memory::cuda::push_range(kind == SpanKind::module_call && !path.empty() ? path.data() : name);
    }
  }
  start_ = now();
}

void Span::runs(Stream stream, DType dtype, Work work) noexcept {
  dtype_ = dtype;
  device_ = of_thread.last_device = stream.device;
  work_ = work;
  if constexpr (kHasCuda) {
    if (!device_.is_cuda() || capturing(device_)) return;
    stream_ = stream.handle;
    first_event_ = memory::cuda::take_timer(stream);
  }
}

void Span::end() noexcept {
  if (of_thread.innermost != this && !SpanRecorder::uncover(this)) [[unlikely]]
    return;
  of_thread.innermost = outer_;
  if constexpr (kHasCuda) {
    if (first_event_) last_event_ = memory::cuda::take_timer({device_, stream_});
    if (session().nvtx.load(std::memory_order_relaxed)) memory::cuda::pop_range();
  }
  const std::uint64_t stop = now();
  bool noted = false;
  write_own(session_, [&](ThreadSpans& t) {
    const std::uint64_t zero = session().start;
    if (start_ < zero) return;
    SpanRecord r;
    r.kind = kind_;
    r.backward = SpanRecorder::is_backward(this);
    r.again = SpanRecorder::is_again(*this);
    r.dtype = dtype_;
    r.device = kind_ == SpanKind::kernel ? device_ : of_thread.last_device;
    r.module = module_;
    r.name = name_;
    r.start = start_ - zero;
    r.end = stop - zero;
    r.inside = inside_;
    r.work = work_;
    r.stream = stream_;
    if (kind_ != SpanKind::kernel) {
      t.settle(nullptr);
      if (kind_ != SpanKind::module_call) r.memory = memory_in_use(of_thread.last_device);
      t.count(r);
    } else {
      r.op = SpanRecorder::operation_around(*this);
      const bool timed = first_event_ && last_event_;
      t.wait(r, timed ? first_event_ : nullptr, timed ? last_event_ : nullptr);
      noted = timed;
    }
  });
  SpanRecorder::add_inside(outer_, session_, stop - start_);
  if (of_thread.innermost && of_thread.innermost->of_range_) [[unlikely]]
    SpanRecorder::drop_ended();
  if constexpr (kHasCuda) {
    if (noted) return;
    if (first_event_) memory::cuda::give_timer(device_.index, first_event_);
    if (last_event_) memory::cuda::give_timer(device_.index, last_event_);
  }
}

void end_operation(const char* op) noexcept {
  const std::uint64_t number = session().number.load(std::memory_order_acquire);
  if (of_thread.session != number) return;  // this thread has run no kernel
  const std::uint64_t stop = now();
  write_own(number, [&](ThreadSpans& t) {
    if (!t.has_waiting()) return;
    SpanRecord r;
    r.kind = SpanKind::operation;
    r.backward = SpanRecorder::is_backward(of_thread.innermost);
    r.device = of_thread.last_device;
    r.module = thread_context.labels.module;
    r.name = op;
    r.start = t.first_start();
    r.end = stop - session().start;
    r.inside = t.waiting_ns();
    r.memory = memory_in_use(of_thread.last_device);
    const std::uint64_t own_ns = r.end - r.start - std::min(r.end - r.start, r.inside);
    t.settle(op);
    t.count(r);
    SpanRecorder::add_inside(of_thread.innermost, number, own_ns);
  });
}

void note_counter(const char* name, std::function<double()> value) {
  require_function("note_counter", value, "give a function that returns the value");
  if (!recording_spans()) return;
  Session& s = session();
  const std::uint64_t time = now();
  const std::lock_guard lock(s.mutex);
  if (!recording_spans() || time < s.start) return;
  if (!take_place()) {
    ++s.left_out;
    return;
  }
  try {
    s.counters.push_back({name, time - s.start, std::move(value)});
  } catch (...) {
    ++s.lost;
  }
}

const char* keep_name(std::string_view name) try {
  // fork() holds it from here on: custom() of another thread may be in this function.
  [[maybe_unused]] static const bool held = (hold_during_fork<names_mutex>(), true);
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(names_mutex());
  constexpr std::size_t kMost = 65'536;
  if (const auto known = names.find(std::string(name)); known != names.end()) return known->c_str();
  if (names.size() >= kMost) return "(more names)";
  return names.emplace(name).first->c_str();
}
FIRN_OUT_OF_MEMORY(kOp)

void start_spans(const SpanOptions& options) try {
  Session& s = session();
  const std::lock_guard lock(s.mutex);
  FIRN_CHECK(!recording_spans(), kOp, "end the other profile first: there is one at a time",
             "the spans of this process are being recorded already");
  bool nvtx = false;
  if constexpr (kHasCuda) nvtx = options.nvtx && memory::cuda::has_ranges();
  FIRN_CHECK(nvtx == options.nvtx, kOp, "build with -DFIRN_CUDA=ON, or leave nvtx out",
             "this build has no NVTX");
  s.used = 0;
  s.counters.clear();
  s.lost = s.left_out = 0;
  s.places.store(static_cast<std::int64_t>(std::min<std::size_t>(options.keep, INT64_MAX)));
  s.nvtx.store(options.nvtx);
  open_own(s, s.number.load() + 1);
  s.number.fetch_add(1);
  s.start = now();
  if constexpr (kHasCuda) memory::cuda::start_timers(s.start);
  detail::spans_on.store(true, std::memory_order_release);
}
FIRN_OUT_OF_MEMORY(kOp)

SpanLog take_spans() try {
  Session& s = session();
  const std::lock_guard lock(s.mutex);
  FIRN_CHECK(recording_spans(), kOp, "call start_spans()", "no spans are being recorded");
  detail::spans_on.store(false);
  const std::uint64_t stop = now();
  struct Close {
    Session& s;
    ~Close() {
      for (std::size_t i = 0; i < s.used; ++i) {
        const std::lock_guard held(s.threads[i]->mutex());
        s.threads[i]->close();
      }
      s.counters.clear();
    }
  } const close{s};
  SpanLog log;
  log.ns = stop - s.start;
  log.lost = s.lost;
  log.left_out = s.left_out;
  if constexpr (kHasCuda) memory::cuda::await_timers();
  for (std::size_t i = 0; i < s.used; ++i) {
    ThreadSpans& t = *s.threads[i];
    const std::lock_guard held(t.mutex());
    t.settle(nullptr);
    t.move_into(log);
  }
  for (const Session::Counter& c : s.counters) {
    const double value = c.value();
    try {
      log.counters.push_back({c.name, c.time, value});
    } catch (const std::bad_alloc&) {
      ++log.lost;
    }
  }
  return log;
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::runtime
