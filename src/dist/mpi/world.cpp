// MpiWorld: waits for other processes, and handles their failures.
#include "dist/mpi/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "base/check.h"

namespace firn::dist {
namespace {

using namespace std::chrono_literals;

constexpr int kNewsTag = 1, kMeetingTag = 1;  // tags of two communicators
constexpr auto kRollCall = 300ms;             // time for answers of ranks that wait in polls
constexpr auto kBusy = 5ms;                   // a longer wait for other ranks naps between polls
constexpr auto kNap = 100us;
constexpr auto kGoodbye = 200ms;  // ranks that end together need no messages
constexpr auto kTurn = 1s;
constexpr auto kLastWords = 1s;  // time for others to report what happened

/// All groups of this process; each comes before those that were split off from it.
std::vector<MpiWorld*>& worlds() {
  static auto& all = *new std::vector<MpiWorld*>;
  return all;
}

std::string text_of(int result) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(result, text, &length) != MPI_SUCCESS)
    return fmt::format("error {}", result);
  return std::string(text, static_cast<std::size_t>(length));
}

/// Facts about the job, known when its group is made.
struct Facts {
  bool serves_threads = false, spans_machines = false;
};
Facts& facts() noexcept {
  static Facts of_job;
  return of_job;
}

}  // namespace

MpiWorld& MpiWorld::get() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  FIRN_CHECK(!finalized, "mpi_group", "call it before MPI_Finalize()", "MPI has ended");
  static MpiWorld& world = *[] {
    auto* const made = new MpiWorld;
    worlds().push_back(made);
    return made;
  }();
  return world;
}

MpiWorld::MpiWorld() {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) {
    MPI_Query_thread(&level);
  } else {
    ok(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    std::atexit(at_exit);
  }
  FIRN_CHECK(level >= MPI_THREAD_SERIALIZED, "mpi_group",
             "ask MPI_Init_thread() for MPI_THREAD_SERIALIZED",
             "MPI serves threads at level {}, less than MPI_THREAD_SERIALIZED ({})", level,
             static_cast<int>(MPI_THREAD_SERIALIZED));  // Open MPI has an enum without a name
  for (MPI_Comm* comm : {&data_, &news_}) {
    ok(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    ok(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ok(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
  ok(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
  MPI_Comm machine = MPI_COMM_NULL;
  ok(MPI_Comm_split_type(data_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
     "MPI_Comm_split_type");
  int here = 0;
  ok(MPI_Comm_size(machine, &here), "MPI_Comm_size");
  ok(MPI_Comm_free(&machine), "MPI_Comm_free");
  facts() = {level >= MPI_THREAD_MULTIPLE, here < size_};
  reserve();
}

bool MpiWorld::serves_threads() noexcept { return facts().serves_threads; }
bool MpiWorld::spans_machines() noexcept { return facts().spans_machines; }

MpiWorld::MpiWorld(const MpiWorld& parent, const SplitPart& part)
    : rank_(part.rank), size_(static_cast<int>(part.members.size())) {
  for (const int m : part.members)
    of_all_.push_back(parent.of_all_.empty() ? m : parent.of_all_[static_cast<std::size_t>(m)]);
  reserve();
  worlds().reserve(worlds().size() + 1);
}

void MpiWorld::split_off(const MpiWorld& parent, int index) {
  const auto split = [&](MPI_Comm from, MPI_Comm& to) {
    MPI_Comm made = MPI_COMM_NULL;
    ok(MPI_Comm_split(from, index, rank_, &made), "MPI_Comm_split");
    ok(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    to = made;
  };
  split(parent.data_, data_);
  split(parent.news_, news_);
  worlds().push_back(this);
}

void MpiWorld::reserve() {
  const auto n = static_cast<std::size_t>(size_);
  records_.resize(n);
  calls_.resize(n);
  left_.assign(n, -1);
  here_.resize(n);
  rows_.resize(n);
  end_.reserve(1);
  even_.reserve(4);  // exchange_messages() must not fail half-way
  for (auto* requests : {&even_, &odd_, &roll_.requests, &notice_.requests, &farewell_.requests})
    requests->reserve(2 * n);
}

void MpiWorld::run(const Call& call, const void* from, void* to, double deadline) {
  if (break_ != Break::none) throw_broken(call.kind);
  take_memory(call);  // a rank that has no memory must not exchange its call
  call_ = call;
  deadline_ = deadline;
  ++number_;
  inside_ = true;
  try {
    if (size_ > 1) {
      heed();
      obey_news();
      meet(call, from);
      heed();  // again: a probe may only fetch a message that the next one finds
      obey_news();
    }
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    const auto part = static_cast<std::int64_t>(call.bytes());
    if (size_ > 1 && fits_in_record(call)) {
      take_from_records(call, target);
    } else if (part > 0) {
      switch (call.kind) {
        case CallKind::all_reduce:
        case CallKind::reduce_scatter:
          reduce(call, source, target);
          break;
        case CallKind::all_gather:
          all_gather(source, target, part);
          break;
        case CallKind::all_to_all:
          all_to_all(source, target, part);
          break;
        case CallKind::broadcast:
          broadcast(target, part, call.root);
          break;
        default:
          break;
      }
    }
  } catch (...) {
    inside_ = false;
    throw;
  }
  inside_ = false;
}

/// Gives all ranks the records of all, in log2(size) rounds: in each a rank passes on what it has
/// (Bruck et al. 1997). A rank that has all records knows that all ranks have come.
void MpiWorld::meet(const Call& call, const void* from) {
  records_[0].call = call;
  if (fits_in_record(call) && call.count > 0) std::memcpy(records_[0].given, from, call.bytes());
  for (int have = 1; have < size_; have *= 2) {
    const int more = std::min(have, size_ - have);
    const auto bytes = static_cast<std::int64_t>(sizeof(Record)) * more;
    receive(&records_[static_cast<std::size_t>(have)], bytes, (rank_ + have) % size_, kMeetingTag,
            even_);
    send(records_.data(), bytes, (rank_ - have + size_) % size_, kMeetingTag, even_);
    wait(even_, false);
  }
  for (int i = 0; i < size_; ++i)
    calls_[static_cast<std::size_t>((rank_ + i) % size_)] =
        records_[static_cast<std::size_t>(i)].call;
  try {
    check_same(rank_, calls_, of_all_);
  } catch (...) {
    break_ = Break::different;
    throw;
  }
}

/// Waits until all requests are done. Bulk data needs polls without naps: MPI moves it in them.
void MpiWorld::wait(std::vector<MPI_Request>& requests, bool bulk) {
  const auto begin = Clock::now();
  const auto end = begin + seconds(deadline_);
  for (;;) {
    int done = 0;
    ok(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
       "MPI_Testall");
    if (done) return requests.clear();
    heed();
    obey_news();
    const auto now = Clock::now();
    if (now > end) be_late();
    if (bulk || now - begin < kBusy) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

/// Throws unless an MPI function has returned MPI_SUCCESS.
void MpiWorld::ok(int result, const char* function) {
  if (result == MPI_SUCCESS) return;
  if (news_ == MPI_COMM_NULL)  // the world is being made
    detail::fail("mpi_group", "", "{} failed: {}", function, text_of(result));
  if (break_ == Break::none) {
    error_ = fmt::format("{} failed: {}", function, text_of(result));
    break_ = Break::failed;
    broken_ = {.news = News::broken, .why = break_, .finder = rank_, .number = number_};
    pending_ = true;
    tell_all(notice_, broken_);
  }
  throw_broken(call_.kind);
}

/// Reads the messages of other ranks about their calls.
void MpiWorld::heed() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    ok(MPI_Iprobe(MPI_ANY_SOURCE, kNewsTag, news_, &there, &status), "MPI_Iprobe");
    if (!there) return;
    Message message;
    ok(MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kNewsTag, news_,
                MPI_STATUS_IGNORE),
       "MPI_Recv");
    const auto source = static_cast<std::size_t>(status.MPI_SOURCE);
    switch (message.news) {
      case News::roll:
        if (inside_ && number_ == message.number) {
          message.news = News::here;  // few bytes, which MPI sends without waiting for the other
          ok(MPI_Send(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kNewsTag, news_),
             "MPI_Send");
        }
        break;
      case News::here:
        if (number_ == message.number) here_[source] = 1;
        break;
      case News::broken:
        if (broken_.news != News::broken) broken_ = message;
        break;
      case News::left:
        left_[source] = message.number;
        break;
    }
  }
}

/// Throws if the present collective cannot end. It still can if the others have finished it.
void MpiWorld::obey_news() {
  if (broken_.news == News::broken && broken_.number <= number_) {
    break_ = broken_.why;
  } else {
    const auto gone = std::find_if(left_.begin(), left_.end(),
                                   [&](std::int64_t last) { return last >= 0 && last < number_; });
    if (gone == left_.end()) return;
    break_ = Break::gone;
    broken_.blamed = static_cast<std::int32_t>(gone - left_.begin());
  }
  pending_ = true;
  throw_broken(call_.kind);
}

void MpiWorld::be_late() {
  std::fill(here_.begin(), here_.end(), 0);
  here_[static_cast<std::size_t>(rank_)] = 1;
  tell_all(roll_, {.news = News::roll, .number = number_});
  for (const auto end = Clock::now() + kRollCall; Clock::now() < end;) {
    heed();
    obey_news();
    if (std::find(here_.begin(), here_.end(), 0) == here_.end()) break;
    std::this_thread::sleep_for(kNap);
  }
  const auto missing = std::find(here_.begin(), here_.end(), 0);
  break_ = Break::late;
  broken_ = {
      .news = News::broken,
      .why = break_,
      .finder = rank_,
      .blamed = missing == here_.end() ? -1 : static_cast<std::int32_t>(missing - here_.begin()),
      .number = number_,
      .deadline = deadline_,
      .kind = call_.kind};
  pending_ = true;
  tell_all(notice_, broken_);
  throw_broken(call_.kind);
}

/// Begins to send to all others, and does not wait for them. If a message cannot be sent, the
/// others throw at their deadline.
void MpiWorld::tell_all(Outbox& outbox, const Message& message) noexcept {
  if (outbox.sent) return;
  outbox.sent = true;
  outbox.message = message;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    outbox.requests.push_back(MPI_REQUEST_NULL);  // memory was reserved
    MPI_Isend(&outbox.message, sizeof message, MPI_BYTE, r, kNewsTag, news_,
              &outbox.requests.back());
  }
  int done = 0;
  MPI_Testall(static_cast<int>(outbox.requests.size()), outbox.requests.data(), &done,
              MPI_STATUSES_IGNORE);
}

void MpiWorld::give_up(std::string_view why) noexcept {
  if (break_ != Break::none) return;
  break_ = Break::given_up;
  broken_ = {.news = News::broken,
             .why = break_,
             .finder = rank_,
             .blamed = rank_,
             .number = 0,  // holds for any collective of the others
             .kind = call_.kind};
  why.copy(broken_.text, sizeof broken_.text - 1);
  tell_all(notice_, broken_);
}

void MpiWorld::throw_broken(CallKind kind) const {
  const char* const op = to_string(kind);
  const int blamed = broken_.blamed;
  constexpr const char* kEnd = "the process should end: MPI cannot mend a group";
  switch (break_) {
    case Break::late:
      if (blamed == rank_)
        throw RankError(op, rank_, blamed,
                        fmt::format("{} waited {} s for {}", name(broken_.finder), broken_.deadline,
                                    name(rank_)),
                        kEnd);
      throw RankError(
          op, rank_, blamed,
          blamed < 0
              ? fmt::format("the ranks did not end it within {} s, though all came",
                            broken_.deadline)
              : fmt::format("{} did not come to {} within {} s; {} waited for it", name(blamed),
                            to_string(broken_.kind), broken_.deadline, name(broken_.finder)),
          "all ranks make the same calls in the same order; MpiOptions::deadline is how long they "
          "may take");
    case Break::gone:
      throw RankError(op, rank_, blamed,
                      fmt::format("{} ended before it came to this call", name(blamed)), kEnd);
    case Break::given_up:
      throw RankError(op, rank_, blamed,
                      fmt::format("{} has failed: {}", name(blamed), broken_.text), kEnd);
    case Break::failed:
      throw RankError(
          op, rank_, broken_.finder == rank_ ? -1 : broken_.finder,
          error_.empty() ? fmt::format("MPI failed on {}", name(broken_.finder)) : error_, kEnd);
    default:
      throw RankError(op, rank_, -1, "the ranks have made different calls before",
                      "a group is broken once calls have differed");
  }
}

/// Runs when the process ends normally, if firn has initialised MPI.
void MpiWorld::at_exit() noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  if (!worlds().empty())
    worlds().front()->leave();
  else
    MPI_Finalize();
}

/// Ends MPI. MPI_Finalize() waits for all ranks, so this rank first reports its end to those that
/// wait for it in a call of any group. If the group is invalid, some may never come. This rank then
/// ends the job, a moment later, so that all can report their errors.
void MpiWorld::leave() noexcept {
  const auto end_job = [this] {
    std::fflush(nullptr);
    // Open MPI may crash if several ranks abort at once, so each waits for another time. A later
    // rank aborts if the earlier ones have not.
    std::this_thread::sleep_for(kTurn * std::min(rank_, 4));
    MPI_Abort(news_, 1);
    std::_Exit(1);
  };
  try {
    end_.resize(1);
    ok(MPI_Ibarrier(news_, end_.data()), "MPI_Ibarrier");
    const auto begin = Clock::now();
    const auto broke = [](const MpiWorld* w) { return w->break_ != Break::none; };
    const auto heard_of_it = [](const MpiWorld* w) { return w->broken_.news == News::broken; };
    const bool broken = std::any_of(worlds().begin(), worlds().end(), broke);
    auto last_words = broken ? begin + kLastWords : Clock::time_point::max();
    for (;;) {
      int done = 0;
      ok(MPI_Testall(1, end_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done) break;
      for (MpiWorld* w : worlds()) w->heed();
      const auto now = Clock::now();
      if (std::any_of(worlds().begin(), worlds().end(), heard_of_it))
        last_words = std::min(last_words, now + kLastWords);
      if (now > last_words) end_job();
      if (now - begin > kGoodbye)
        for (MpiWorld* w : worlds())
          w->tell_all(w->farewell_, {.news = News::left, .number = w->number_});
      if (now - begin < kBusy) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
    if (broken) end_job();
    MPI_Finalize();
  } catch (const std::exception&) {  // MPI has failed
    end_job();
  }
}

}  // namespace firn::dist
