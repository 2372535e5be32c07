#include "kernels/cuda/cudnn/library.h"

#include <dlfcn.h>

#include <array>
#include <memory>

#include "firn/error.h"

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
  std::vector<std::string> names = {"libcudnn.so." + std::to_string(CUDNN_MAJOR)};
#ifdef FIRN_CUDNN_PATH
  if (*FIRN_CUDNN_PATH) names.emplace_back(FIRN_CUDNN_PATH);
#endif
  for (const std::string& name : names) {
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      out.tried += "\n  " + name + ": " + (why ? why : "not found");
      continue;
    }
    auto found = std::make_unique<Cudnn>();
    std::string missing;
#define FIRN_TAKE(f)                                                   \
  found->f = reinterpret_cast<decltype(found->f)>(dlsym(library, #f)); \
  if (!found->f) missing = #f;
    FIRN_EACH_CUDNN(FIRN_TAKE)
#undef FIRN_TAKE
    if (missing.empty()) {
      found->path = name;
      out.functions = std::move(found);
      return out;  // never closed: handles live until the process ends
    }
    out.tried += "\n  " + name + ": has no function " + missing;
    dlclose(library);
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
