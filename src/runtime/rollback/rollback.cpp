// The RollbackPoints of each thread, and the changes that they know of.
#include "firn/runtime/rollback.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <iterator>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread/inherited.h"
#include "firn/random.h"
#include "runtime/plan/plan_number.h"
#include "runtime/rollback/silence.h"

namespace firn {

struct RollbackPoint::Impl {
  struct Thing {
    Rollback kind;
    const void* what;
    bool operator==(const Thing&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Thing& t) const noexcept {
      return std::hash<const void*>()(t.what) ^ static_cast<std::size_t>(t.kind);
    }
  };
  struct Change {
    Thing thing;
    std::shared_ptr<const runtime::PutBack> put_back;  ///< null once that is done
  };

  explicit Impl(std::uint8_t kinds) noexcept : covered(kinds) {}

  bool is_mine() const noexcept { return thread == std::this_thread::get_id(); }
  bool is_of_this_plan() const noexcept { return plan == runtime::plan_number(); }

  static constexpr std::uint8_t bit(Rollback kind) noexcept {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind));
  }
  bool covers(Rollback kind) const noexcept { return (covered & bit(kind)) != 0; }
  bool lacks(const Thing& t) const { return covers(t.kind) && !known.contains(t); }

  /// Throws if one of these kinds cannot be put back now.
  void check(std::uint8_t kinds) const;
  /// Puts changes back, and throws the first error at the end.
  void put_back(std::uint8_t kinds);
  void forget_done();
  /// Makes the point as new for these kinds.
  void stand_as_new(std::uint8_t kinds);

  std::uint8_t covered;  ///< kinds, as bits
  Generator& generator = default_generator();
  RandomKey key = generator.get();
  std::vector<Change> changes;  ///< in the order in which they were made
  std::unordered_set<Thing, Hash> known;
  Impl* outer = nullptr;
  const std::thread::id thread = std::this_thread::get_id();
  const std::uint32_t plan = runtime::plan_number();  ///< plan that it was made in; 0: none
  /// True if another thread, which must not touch the list, or a plan, which hides it, has ended
  /// the point.
  std::atomic<bool> abandoned = false;
  std::shared_ptr<Impl> itself;  ///< keeps an abandoned point until its thread unlinks it
};

/// The stack of this thread's points.
class RollbackSeam {
 public:
  using Point = RollbackPoint::Impl;

  /// Makes `p` the innermost point of this thread, and returns the previous one.
  static void* exchange(void* p) noexcept {
    return std::exchange(innermost(), static_cast<Point*>(p));
  }
  static void push(Point& p) noexcept { p.outer = std::exchange(innermost(), &p); }
  /// Unlinks points that other threads have destroyed.
  static void drop_abandoned() noexcept {
    for (Point** at = &innermost(); *at;) {
      Point* const point = *at;
      if (point->abandoned.load(std::memory_order_acquire)) {
        *at = point->outer;
        const std::shared_ptr<Point> last = std::move(point->itself);
      } else {
        at = &point->outer;
      }
    }
  }
  static void remove(const Point& p) noexcept {
    Point** at = &innermost();
    while (*at && *at != &p) at = &(*at)->outer;
    if (*at) *at = p.outer;
  }
  static bool wanted() noexcept {
    if (innermost()) [[unlikely]]
      drop_abandoned();
    return innermost() != nullptr;
  }

  static void before_change(const Point::Thing& thing,
                            const std::function<runtime::PutBack()>& save) {
    bool lacking = false;
    for (const Point* p = innermost(); p; p = p->outer) lacking = lacking || p->lacks(thing);
    if (!lacking) return;
    const auto put_back = std::make_shared<const runtime::PutBack>(save());
    require_function("before_change", put_back->put_back, "return one that puts the thing back",
                     "the function that save() returns");
    for (Point* p = innermost(); p; p = p->outer) {
      if (!p->lacks(thing)) continue;
      p->changes.push_back({thing, put_back});
      p->known.insert(thing);
    }
  }

  static void forget(const Point::Thing& thing) noexcept {
    for (Point* p = innermost(); p; p = p->outer) {
      if (p->known.erase(thing) == 0) continue;
      const auto at = std::find_if(p->changes.rbegin(), p->changes.rend(),
                                   [&](const Point::Change& c) { return c.thing == thing; });
      p->changes.erase(std::prev(at.base()));  // usually one of the latest
    }
  }

  static void begin_anew() noexcept {
    Point* const points = innermost();
    const memory::SilentRollback silence;  // dropping a change may end a generator
    for (Point* p = points; p; p = p->outer) {
      p->stand_as_new(p->covered);
      p->key = p->generator.get();
    }
  }

  static void roll_back(Point& point, std::uint8_t kinds) {
    drop_abandoned();
    point.check(kinds);
    // Putting back is not a new change, neither for this point nor for those around it, which know
    // all that this one knows.
    Point* const points = innermost();
    const memory::SilentRollback silence;
    kinds &= point.covered;
    for (Point* p = points; p && p != &point; p = p->outer) p->stand_as_new(kinds);
    std::exception_ptr error;
    try {
      point.put_back(kinds);
    } catch (...) {
      error = std::current_exception();
    }
    if ((kinds & Point::bit(Rollback::random)) != 0)
      for (Point* p = points; p && p != &point; p = p->outer) p->key = p->generator.get();
    if (error) std::rethrow_exception(error);
  }

  /// Gives this thread's stack to a thread that does a part of its work, while this one waits.
  static Inherited::Set share() {
    return [stack = &innermost()] { of_thread.shared = stack; };
  }

 private:
  static Point*& innermost() noexcept {
    return of_thread.shared ? *of_thread.shared : of_thread.own;
  }

  struct OfThread {
    Point* own;      ///< the innermost one
    Point** shared;  ///< stack of the thread whose work this one does a part of
  };
  static inline thread_local constinit OfThread of_thread{nullptr, nullptr};
};

namespace {
const Inherited inherited_points{&RollbackSeam::share};
}  // namespace

memory::SilentRollback::SilentRollback() noexcept : points_(RollbackSeam::exchange(nullptr)) {}
memory::SilentRollback::~SilentRollback() { RollbackSeam::exchange(points_); }

void RollbackPoint::Impl::check(std::uint8_t kinds) const {
  for (const Change& c : changes)
    if (c.put_back && c.put_back->check && (kinds & bit(c.thing.kind)) != 0) c.put_back->check();
}

void RollbackPoint::Impl::put_back(std::uint8_t kinds) {
  std::exception_ptr error;
  for (std::size_t i = changes.size(); i-- > 0;) {
    Change& c = changes[i];
    if ((kinds & bit(c.thing.kind)) == 0) continue;
    try {
      c.put_back->put_back();
      c.put_back.reset();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if ((kinds & bit(Rollback::random)) != 0) generator.set(key);
  forget_done();
  if (error) std::rethrow_exception(error);
}

void RollbackPoint::Impl::forget_done() {
  for (const Change& c : changes)
    if (!c.put_back) known.erase(c.thing);
  std::erase_if(changes, [](const Change& c) { return !c.put_back; });
}

void RollbackPoint::Impl::stand_as_new(std::uint8_t kinds) {
  for (Change& c : changes)
    if ((kinds & bit(c.thing.kind)) != 0) c.put_back.reset();
  forget_done();
}

RollbackPoint::RollbackPoint()
    : RollbackPoint({Rollback::random, Rollback::statistics, Rollback::data, Rollback::gradients}) {
}

RollbackPoint::RollbackPoint(std::initializer_list<Rollback> kinds) try {
  std::uint8_t covered = 0;
  for (const Rollback kind : kinds) {
    require_named("RollbackPoint", "Rollback", kind, Rollback::gradients);
    covered |= Impl::bit(kind);
  }
  impl_ = std::make_shared<Impl>(covered);
  RollbackSeam::push(*impl_);
}
FIRN_OUT_OF_MEMORY("RollbackPoint")

RollbackPoint::~RollbackPoint() {
  if (impl_->is_mine() && (impl_->is_of_this_plan() || impl_->plan > 0)) {
    RollbackSeam::remove(*impl_);  // a plan that has ended has left no point in the list
  } else {                         // its thread unlinks it, after the plan that hides it
    impl_->itself = impl_;
    impl_->abandoned.store(true, std::memory_order_release);
  }
}

void RollbackPoint::roll_back() { roll_back_kinds(impl_->covered); }
void RollbackPoint::roll_back(Rollback kind) {
  require_named("RollbackPoint", "Rollback", kind, Rollback::gradients);
  roll_back_kinds(Impl::bit(kind));
}

void RollbackPoint::roll_back_kinds(std::uint8_t kinds) {
  FIRN_CHECK(impl_->is_mine(), "RollbackPoint", "use it in the thread that made it",
             "a point of another thread cannot be rolled back here");
  FIRN_CHECK(impl_->is_of_this_plan(), "RollbackPoint",
             "make it where it is rolled back: within one plan, or outside of plans",
             "a point that was made {} it",
             impl_->plan == 0 ? "outside of the plan cannot be rolled back in"
                              : "in a plan cannot be rolled back after");
  RollbackSeam::roll_back(*impl_, kinds);
}

namespace runtime {

bool rollback_wanted() noexcept { return RollbackSeam::wanted(); }

void forget_change(Rollback kind, const void* what) noexcept {
  if (RollbackSeam::wanted()) [[unlikely]]
    RollbackSeam::forget({kind, what});
}

void begin_points_anew() noexcept {
  if (RollbackSeam::wanted()) [[unlikely]]
    RollbackSeam::begin_anew();
}

void before_change(Rollback kind, const void* what, const std::function<PutBack()>& save) try {
  require_function("before_change", save, "give a function that returns how to put the thing back");
  if (RollbackSeam::wanted()) [[unlikely]]
    RollbackSeam::before_change({kind, what}, save);
}
FIRN_OUT_OF_MEMORY("RollbackPoint")

}  // namespace runtime
}  // namespace firn
