#include "kernels/cuda/cudnn/library.h"

#include <array>
#include <memory>
#include <utility>

#include "firn/error.h"
#include "kernels/settings/open_library.h"

namespace firn::gpu {
namespace {

struct Loaded {
  std::unique_ptr<Cudnn> functions;
  std::string tried;
};

/// Tries the library in the process or the system's search path, then the one that the build found
/// (in the toolkit or in Python's packages).
Loaded load() {
  Loaded out;
  const auto names = kernels::library_names("cudnn", CUDNN_MAJOR, FIRN_CUDNN_PATH);
  auto found = std::make_unique<Cudnn>();
  kernels::OpenedLibrary opened = kernels::open_library(names, [&](void* library) {
    std::string missing;
#define FIRN_TAKE(f)                                                   \
  found->f = reinterpret_cast<decltype(found->f)>(dlsym(library, #f)); \
  if (!found->f) missing = "has no function " #f;
    FIRN_EACH_CUDNN(FIRN_TAKE)
#undef FIRN_TAKE
    return missing;
  });
  out.tried = std::move(opened.tried);
  if (!opened.name.empty()) {
    found->path = std::move(opened.name);
    out.functions = std::move(found);
  }
  return out;
}

const Loaded& loaded() {
  static const auto* const library = new Loaded(load());
  return *library;
}

}  // namespace

const Cudnn* cudnn() { return loaded().functions.get(); }
const std::string& why_no_cudnn() { return loaded().tried; }

std::string describe(cudnnStatus_t status) {
  std::array<char, 512> last{};
  cudnn()->cudnnGetLastErrorString(last.data(), last.size());
  return std::string(cudnn()->cudnnGetErrorString(status)) + " (" +
         std::to_string(static_cast<int>(status)) + ")" +
         (last[0] ? std::string(": ") + last.data() : "");
}

void check(cudnnStatus_t status, const char* op, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(op, std::string(call) + " answered " + describe(status),
              "FIRN_CONVOLUTIONS=im2col and FIRN_ATTENTION=own do without cuDNN; "
              "CUDNN_LOGLEVEL_DBG=2 makes "
              "it say more");
}

}  // namespace firn::gpu
