// The transport of processes over MPI.
#include "firn/dist/mpi.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "dist/mpi/world.h"

namespace firn::dist {
namespace {

class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiWorld& world, double deadline) : world_(world), deadline_(deadline) {}
  MpiTransport(std::unique_ptr<MpiWorld> part, int index, const MpiWorld& parent, double deadline)
      : MpiTransport(*part, deadline) {
    part_ = std::move(part);
    index_ = index;
    parent_ = &parent;
  }
  int rank() const noexcept override { return world_.rank(); }
  int size() const noexcept override { return world_.size(); }
  std::string_view kind() const noexcept override { return "mpi"; }
  double deadline() const noexcept override { return deadline_; }
  void run(const Call& call, const void* from, void* to) override {
    world_.run(call, from, to, deadline_);
  }
  void exchange_messages(std::span<const Message> messages) override {
    world_.exchange_messages(messages, deadline_);
  }
  void give_up(std::string_view why) noexcept override { world_.give_up(why); }
  std::shared_ptr<Transport> split(const SplitPart& part) override {
    return std::make_shared<MpiTransport>(std::make_unique<MpiWorld>(world_, part), part.index,
                                          world_, deadline_);
  }
  void connect() override {
    world_.split_off(*parent_, index_);
    part_.release();  // NOLINT: it is one of the groups that are never destroyed
  }
  bool is_concurrent() const noexcept override { return MpiWorld::serves_threads(); }
  bool is_far() const noexcept override { return MpiWorld::spans_machines(); }
  bool keeps_memory() const noexcept override { return world_.keeps_memory(); }

 private:
  MpiWorld& world_;
  const double deadline_;
  // Between split() and connect():
  std::unique_ptr<MpiWorld> part_;
  int index_ = 0;
  const MpiWorld* parent_ = nullptr;
};

}  // namespace

Group mpi_group(const MpiOptions& options) try {
  FIRN_CHECK(options.deadline > 0, "mpi_group",
             "it is the seconds that a rank waits for the others", "the deadline is {}",
             options.deadline);
  return Group(std::make_shared<MpiTransport>(MpiWorld::get(), options.deadline));
}
FIRN_OUT_OF_MEMORY("mpi_group")

}  // namespace firn::dist
