// The transport of ranks on CUDA devices over NCCL, and how the ranks connect.
#include "firn/dist/nccl.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "dist/nccl/rendezvous.h"
#include "dist/nccl/staged.h"
#include "dist/nccl/world.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "nccl_group";

class NcclTransport final : public Transport, public std::enable_shared_from_this<NcclTransport> {
 public:
  NcclTransport(int rank, int size, Device device, const NcclOptions& options,
                std::optional<Group> bootstrap, std::vector<int> of_all = {})
      : world_(rank, size, device, options, std::move(bootstrap), std::move(of_all)) {}
  NcclWorld& world() noexcept { return world_; }

  int rank() const noexcept override { return world_.rank(); }
  int size() const noexcept override { return world_.size(); }
  std::string_view kind() const noexcept override { return "nccl"; }
  double deadline() const noexcept override { return world_.deadline(); }
  Device device() const noexcept override { return world_.device(); }
  void run(const Call& call, const void* from, void* to) override { world_.run(call, from, to); }
  void exchange_messages(std::span<const Message> messages) override {
    world_.exchange_messages(messages);
  }
  /// The others throw where they compare their calls, else at the deadline.
  void give_up(std::string_view why) noexcept override {
    if (world_.bootstrap()) GroupAccess::transport(*world_.bootstrap())->give_up(why);
  }
  void plan(const Call& call) override { world_.plan(call); }
  void announce(const Call& call) override { world_.announce(call); }
  std::shared_ptr<Transport> split(const SplitPart& part) override;
  void connect() override;
  bool is_far() const noexcept override { return true; }
  std::optional<Group> host() override {
    if (const auto& group = world_.bootstrap()) return group;
    return Group(std::make_shared<StagedTransport>(shared_from_this()));
  }

 private:
  NcclWorld world_;
  // Between split() and connect():
  std::optional<Group> hosts_of_all_;  ///< group of the hosts that is split
  int first_ = 0;                      ///< the part's first rank in it, which makes the id
};

void check_options(Device device, const NcclOptions& options) {
  FIRN_CHECK(device.is_cuda(), kOp, "give Device::cuda(i), another one on each rank",
             "{} is not a CUDA device", device);
  FIRN_CHECK(options.deadline > 0, kOp, "it is the seconds that a rank waits for the others",
             "the deadline is {}", options.deadline);
  FIRN_CHECK(!runtime::dry_run(), kOp, "make it before plan_memory()",
             "ranks do not exchange data in a dry run");
  require_device(kOp, device);
}

/// Record that ranks exchange before they use NCCL.
struct Card {
  std::int32_t version = 0;
  std::int32_t result = 0;  ///< result of ncclGetUniqueId(), if the rank made an id
  ncclUniqueId id = {};
};

/// Returns every rank's `mine`.
template <class T>
std::vector<T> gather(const Group& group, const T& mine) {
  const auto n = static_cast<std::int64_t>(sizeof(T));
  const Tensor part = empty({n}, DType::u8, Device::cpu());
  const Tensor all = empty({n * group.size()}, DType::u8, Device::cpu());
  std::memcpy(part.mutable_view().data, &mine, sizeof mine);
  group.all_gather(part, all);
  std::vector<T> out(static_cast<std::size_t>(group.size()));
  std::memcpy(out.data(), all.view().data, all.bytes());
  return out;
}

/// Returns the id that rank `from` has made. All ranks call it, and each names the rank it needs.
ncclUniqueId share_id(const Group& bootstrap, int from = 0) {
  const Nccl& lib = nccl();
  Card mine{.version = lib.version};
  if (bootstrap.rank() == from) mine.result = lib.ncclGetUniqueId(&mine.id);
  const std::vector<Card> cards = gather(bootstrap, mine);
  const auto refuse = [&](int peer, const std::string& text, const char* hint) {
    throw RankError(kOp, bootstrap.rank(), peer, text, hint);
  };
  for (std::size_t r = 1; r < cards.size(); ++r)
    if (cards[r].version != cards[0].version)
      refuse(static_cast<int>(r),
             fmt::format("rank {} has NCCL {}, rank 0 has {}", r,
                         nccl_version_text(cards[r].version), nccl_version_text(cards[0].version)),
             "all ranks need the same version");
  for (std::size_t r = 0; r < cards.size(); ++r)
    if (cards[r].result != ncclSuccess)
      refuse(static_cast<int>(r),
             fmt::format("ncclGetUniqueId answered {} on rank {}",
                         describe(lib, static_cast<ncclResult_t>(cards[r].result)), r),
             "NCCL_DEBUG=WARN makes NCCL say more");
  return cards[static_cast<std::size_t>(from)].id;
}

/// Connects all ranks, or none.
void connect(NcclWorld& world, const Group& bootstrap, const ncclUniqueId& id) {
  std::exception_ptr thrown;
  try {
    world.connect(id);
  } catch (...) {
    thrown = std::current_exception();
  }
  const auto failed = gather(bootstrap, static_cast<std::uint8_t>(thrown != nullptr));
  if (thrown) std::rethrow_exception(thrown);
  for (std::size_t r = 0; r < failed.size(); ++r)
    if (failed[r]) world.give_up(static_cast<int>(r));
}

/// Gives each part a communicator, and a part of the bootstrap group if there is one.
std::shared_ptr<Transport> NcclTransport::split(const SplitPart& part) {
  std::vector<int> of_all = part.members;
  if (!world_.of_all().empty())
    for (int& r : of_all) r = world_.of_all()[static_cast<std::size_t>(r)];
  std::optional<Group> bootstrap;
  if (world_.bootstrap())
    bootstrap = Group(GroupAccess::transport(*world_.bootstrap())->split(part));
  auto out =
      std::make_shared<NcclTransport>(part.rank, static_cast<int>(part.members.size()), device(),
                                      world_.options(), std::move(bootstrap), std::move(of_all));
  out->hosts_of_all_ = host();
  out->first_ = part.members.front();
  return out;
}

void NcclTransport::connect() {
  if (world_.bootstrap()) GroupAccess::transport(*world_.bootstrap())->connect();
  const std::optional<Group> hosts = std::exchange(hosts_of_all_, std::nullopt);
  dist::connect(world_, *hosts, share_id(*hosts, first_));
}

}  // namespace

Group nccl_group(const Group& bootstrap, Device device, const NcclOptions& options) try {
  check_options(device, options);
  FIRN_CHECK(bootstrap.device().is_cpu(), kOp, "give that of run_local() or mpi_group()",
             "the bootstrap group is on {}", bootstrap.device());
  const auto transport = std::make_shared<NcclTransport>(bootstrap.rank(), bootstrap.size(), device,
                                                         options, bootstrap);
  connect(transport->world(), bootstrap, share_id(bootstrap));
  return Group(transport);
}
FIRN_OUT_OF_MEMORY(kOp)

Group nccl_group(int rank, int size, const std::string& path, Device device,
                 const NcclOptions& options) try {
  check_options(device, options);
  FIRN_CHECK(size >= 1 && rank >= 0 && rank < size, kOp, "ranks count from 0",
             "rank {} of {} ranks", rank, size);
  const auto transport =
      std::make_shared<NcclTransport>(rank, size, device, options, std::optional<Group>());
  if (rank > 0) {
    transport->world().connect(wait_for_id(path, rank, size, options.deadline));
    return Group(transport);
  }
  const IdFile file(path, size);
  transport->world().connect(file.id());
  return Group(transport);  // removes the file, which all ranks have read
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::dist
