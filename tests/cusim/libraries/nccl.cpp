// NCCL's functions, as far as firn calls them.
#include "libraries/nccl_fake.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "libraries/nccl_clique.h"
#include "runtime.h"

namespace cusim {
namespace {

/// All that there is, under the runtime's lock.
struct Table {
  std::map<std::string, std::unique_ptr<NcclClique>> cliques;  ///< by id
  std::vector<std::unique_ptr<ncclComm>> comms;  ///< gone ones too: their use is noticed
  std::function<int(const NcclCall&)> hook;
  NcclSettings settings;
  NcclStats stats{};
  std::uint64_t last_id = 0;
};
Table& table() {
  static Table& all = *new Table;
  return all;
}

/// Of ncclGroupStart() in this thread.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm_t, std::pair<cudaStream_t, NcclOp>>> ops;
};
thread_local Group group;

/// The frame of a function: counts the call, and does what the hook answers instead, if anything.
template <class Body>
ncclResult_t answer(const char* name, ncclComm_t comm, Body&& body) {
  const std::lock_guard lock(runtime_lock());
  ++table().stats.calls;
  if (table().hook) {
    const int result = table().hook({name, comm ? comm->rank : -1});
    if (result != ncclSuccess) return static_cast<ncclResult_t>(result);
  }
  return body();
}

ncclResult_t misuse(ncclComm_t comm, const char* what) {
  ++table().stats.misuse;
  if (comm) comm->said = what;
  return ncclInvalidArgument;
}

int some_polls() {
  return static_cast<int>(
      random_below(static_cast<std::uint64_t>(table().settings.most_polls) + 1));
}

void put_in_stream(NcclLaunch& launch) {
  ncclComm_t const comm = launch.comm;
  cudaEvent_t before = nullptr;  // launches of a communicator run one after another
  if (comm->launches.size() > 1) before = &comm->launches[comm->launches.size() - 2]->done;
  Work arrive{cudaGraphNodeTypeKernel, [&launch] { launch.comm->clique->arrive(launch); },
              "library", before, before ? std::uint64_t{1} : 0};
  push(launch.stream, std::move(arrive));
  push(launch.stream, {cudaGraphNodeTypeKernel, {}, "library", &launch.done, 1});
}

bool is_message(const NcclOp& op) {
  return op.kind == NcclKind::send || op.kind == NcclKind::receive;
}

/// The first work connects ranks: the first collective all with each other, the first messages
/// the two ranks.
bool are_connected(const NcclLaunch& launch) {
  const NcclClique& clique = *launch.comm->clique;
  return std::all_of(launch.ops.begin(), launch.ops.end(), [&](const NcclOp& op) {
    return is_message(op) ? clique.met.contains({op.peer, launch.comm->rank})
                          : clique.started == clique.size;
  });
}

bool in_progress(ncclComm_t comm) {
  if (comm->polls > 0) return --comm->polls, true;
  if (comm->joining) {
    for (ncclComm_t c : comm->clique->ranks)
      if (!c) return true;
    comm->joining = false;
  }
  if (comm->pending) {
    if (!are_connected(*comm->pending)) return true;
    NcclLaunch* const launch = std::exchange(comm->pending, nullptr);
    put_in_stream(*launch);
  }
  if (comm->ending)
    for (const auto& launch : comm->launches)
      if (!launch->ended) return true;
  return false;
}

ncclResult_t state_of(ncclComm_t comm) {
  if (comm->error != ncclSuccess) return comm->error;
  return in_progress(comm) ? ncclInProgress : ncclSuccess;
}

/// A communicator that takes work now.
ncclResult_t check_ready(ncclComm_t comm) {
  if (!comm || comm->gone) return misuse(nullptr, "");
  if (comm->error != ncclSuccess) return comm->error;
  if (comm->joining || comm->pending || comm->polls > 0 || comm->ending)
    return misuse(comm,
                  "Attempt to use communicator before the previous operation returned "
                  "ncclSuccess");
  return ncclSuccess;
}

ncclResult_t check_op(ncclComm_t comm, cudaStream_t stream, const NcclOp& op) {
  if (const ncclResult_t r = check_ready(comm)) return r;
  const auto refuse = [&](const char* why) {
    comm->said = why;
    return ncclInvalidArgument;
  };
  if (op.peer < 0 || op.peer >= comm->size) return refuse("no such peer");
  for (const auto& [p, bytes] :
       {std::pair<const void*, std::size_t>{op.from, op.from_bytes(comm->size)},
        {op.to, op.to_bytes(comm->size)}})
    if (bytes > 0 && !is_device_range(p, bytes)) return refuse("not memory of a device");
  if (resolve(stream)->device != comm->device) return refuse("a stream of another device");
  if (resolve(stream)->capture) return refuse("the stand-in cannot be captured");
  return ncclSuccess;
}

/// Each communicator's operations become one launch.
ncclResult_t launch_group() {
  ncclResult_t result = ncclSuccess;
  std::map<ncclComm_t, NcclLaunch*> launches;
  for (const auto& [comm, given] : group.ops) {
    NcclLaunch*& launch = launches[comm];
    if (!launch) {
      launch = comm->launches.emplace_back(std::make_unique<NcclLaunch>()).get();
      launch->comm = comm;
      launch->stream = resolve(given.first);
      launch->done.of_library = true;
      launch->done.recorded = 1;
    }
    launch->ops.push_back(given.second);
    ++launch->left;
  }
  for (const auto& [comm, launch] : launches) {
    for (const NcclOp& op : launch->ops) {
      if (is_message(op))
        comm->clique->met.insert({comm->rank, op.peer});
      else if (!std::exchange(comm->launched, true))
        ++comm->clique->started;
    }
    comm->pending = launch;
    comm->polls = some_polls();
    if (in_progress(comm)) result = ncclInProgress;
  }
  return result;
}

ncclResult_t end_group() {
  const ncclResult_t error = std::exchange(group.error, ncclSuccess);
  const ncclResult_t result = error == ncclSuccess ? launch_group() : error;
  group.ops.clear();
  return result;
}

ncclResult_t add(const char* name, ncclComm_t comm, cudaStream_t stream, const NcclOp& op) {
  const ncclResult_t result = answer(name, comm, [&] { return check_op(comm, stream, op); });
  const std::lock_guard lock(runtime_lock());
  if (result != ncclSuccess) {
    if (group.depth > 0) group.error = result;
    return result;
  }
  group.ops.push_back({comm, {stream, op}});
  return group.depth > 0 ? ncclSuccess : end_group();
}

}  // namespace

NcclSettings& nccl_settings() { return table().settings; }
const NcclStats& nccl_stats() { return table().stats; }
NcclStats& mutable_nccl_stats() { return table().stats; }

void on_nccl_call(std::function<int(const NcclCall&)> hook) {
  const std::lock_guard lock(runtime_lock());
  table().hook = std::move(hook);
}

void nccl_async_error(int rank, int result) {
  const std::lock_guard lock(runtime_lock());
  for (const auto& comm : table().comms) {
    if (comm->rank != rank || comm->gone) continue;
    comm->error = static_cast<ncclResult_t>(result);
    comm->stuck = true;
    comm->said = "an asynchronous error";
  }
}

void reset_nccl() {
  const std::lock_guard lock(runtime_lock());
  drain_all();  // transfers of what has been aborted
  Table& all = table();
  all.hook = nullptr;
  all.settings = {};
  all.stats = {};
  all.cliques.clear();
  all.comms.clear();
}

}  // namespace cusim

using namespace cusim;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) { return comm ? comm->said.c_str() : ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return answer("ncclGetUniqueId", nullptr, [&] {
    *id = {};
    const std::string text = "cusim " + std::to_string(++table().last_id);
    std::memcpy(id->internal, text.data(), text.size());
    table().cliques[text] = std::make_unique<NcclClique>();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *out = nullptr;
  return answer("ncclCommInitRankConfig", nullptr, [&]() -> ncclResult_t {
    if (group.depth > 0 || !config || config->blocking != 0) return ncclInvalidUsage;
    if (size < 1 || rank < 0 || rank >= size) return ncclInvalidArgument;
    const auto found = table().cliques.find(id.internal);
    if (found == table().cliques.end()) return ncclInvalidArgument;
    NcclClique& clique = *found->second;
    if (clique.size == 0) {
      clique.size = size;
      clique.ranks.resize(static_cast<std::size_t>(size));
    }
    if (clique.size != size) return ncclInvalidArgument;
    ncclComm_t& place = clique.ranks[static_cast<std::size_t>(rank)];
    if (place) return ncclInvalidUsage;
    place = *out = table().comms.emplace_back(std::make_unique<ncclComm>()).get();
    place->clique = &clique;
    place->rank = rank;
    place->size = size;
    place->device = current_device();
    place->polls = some_polls();
    ++table().stats.alive;
    return ncclInProgress;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return answer("ncclCommGetAsyncError", comm, [&] {
    if (!comm || comm->gone) return misuse(nullptr, "");
    *error = state_of(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return answer("ncclCommFinalize", comm, [&] {
    if (const ncclResult_t r = check_ready(comm)) return r;
    comm->ending = true;
    comm->polls = some_polls();
    return ncclInProgress;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return answer("ncclCommDestroy", comm, [&] {
    if (!comm || comm->gone) return misuse(nullptr, "");
    if (!comm->ending || in_progress(comm)) return misuse(comm, "not finalized");
    comm->gone = true;
    --table().stats.alive;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const ncclResult_t result = answer("ncclCommAbort", comm, [] { return ncclSuccess; });
  const std::lock_guard lock(runtime_lock());
  if (!comm || comm->gone) return misuse(nullptr, "");
  comm->gone = true;
  --table().stats.alive;
  ++table().stats.aborts;
  abandon(comm);
  if (table().settings.tell_of_aborts)
    for (ncclComm_t peer : comm->clique->ranks)
      if (peer && !peer->gone && peer->error == ncclSuccess) peer->error = ncclRemoteError;
  return result;
}

ncclResult_t ncclGroupStart() {
  return answer("ncclGroupStart", nullptr, [] {
    ++group.depth;
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  const ncclResult_t result = answer("ncclGroupEnd", nullptr, [] { return ncclSuccess; });
  const std::lock_guard lock(runtime_lock());
  if (group.depth == 0) {
    ++table().stats.misuse;
    return ncclInvalidUsage;
  }
  if (result != ncclSuccess) group.error = result;
  return --group.depth > 0 ? result : end_group();
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclAllReduce", comm, stream, {NcclKind::all_reduce, from, to, count, type, op, 0});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclReduceScatter", comm, stream,
             {NcclKind::reduce_scatter, from, to, count, type, op, 0});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add("ncclAllGather", comm, stream,
             {NcclKind::all_gather, from, to, count, type, ncclSum, 0});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclBroadcast", comm, stream,
             {NcclKind::broadcast, from, to, count, type, ncclSum, root});
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add("ncclSend", comm, stream, {NcclKind::send, from, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclRecv", comm, stream,
             {NcclKind::receive, nullptr, to, count, type, ncclSum, peer});
}

}  // extern "C"
