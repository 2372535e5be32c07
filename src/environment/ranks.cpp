// The libraries through which ranks communicate: MPI, which firn::mpi links, and NCCL, which
// firn::nccl opens. This library links neither.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "dist/nccl_version.h"
#include "environment/parts.h"
#include "kernels/settings/open_library.h"

namespace firn::environment_parts {
namespace {

using Found = Environment::Found;

/// Returns the first executable file of that name in PATH.
std::string program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0)
      return file;
  }
  return "";
}

#if defined(FIRN_HAS_NCCL) && !defined(FIRN_HAS_CUSIM)
void open_nccl(Environment::Library& nccl) {
  const int major = std::atoi(FIRN_NCCL_VERSION);  // up to the first dot
  std::string version;
  const kernels::OpenedLibrary opened = kernels::open_library(
      kernels::library_names("nccl", major, FIRN_NCCL_PATH), [&](void* library) -> std::string {
        const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
        int number = 0;
        if (!ask || ask(&number) != 0) return "says no version";
        version = dist::nccl_version_text(number);
        return dist::why_not_nccl(number, major);
      });
  nccl.found = opened.name.empty() ? Found::no : Found::yes;
  nccl.path = presentable(opened.name);
  nccl.why = presentable(opened.tried);
  if (nccl.found == Found::yes) nccl.version = version;
}
#endif

}  // namespace

void add_ranks(Environment& e, [[maybe_unused]] const EnvironmentOptions& options) {
  e.mpi.name = "MPI";
  e.mpirun = presentable(program("mpirun"));
#ifdef FIRN_HAS_MPI
  e.mpi.built = true;
  e.mpi.version = FIRN_MPI_VERSION;
  e.mpi.path = presentable(FIRN_MPI_PATH);
  std::error_code ignored;
  const bool there = std::filesystem::exists(FIRN_MPI_PATH, ignored);
  e.mpi.found = there ? Found::yes : Found::no;
  if (!there) e.mpi.why = "\n  " + e.mpi.path + ": does not exist any more";
#endif
  e.nccl.name = "NCCL";
#ifdef FIRN_HAS_NCCL
  e.nccl.built = true;
#ifdef FIRN_HAS_CUSIM
  e.nccl.found = Found::yes;
  e.nccl.version = e.nccl.path = "simulator";
#else
  e.nccl.version = FIRN_NCCL_VERSION;
  e.nccl.found = Found::not_looked_for;
  if (options.open) open_nccl(e.nccl);
#endif
#endif
}

}  // namespace firn::environment_parts
