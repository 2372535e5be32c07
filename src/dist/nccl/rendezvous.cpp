#include "dist/nccl/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "firn/dist/group.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "nccl_group";
constexpr auto kNap = std::chrono::milliseconds(2);

/// Contents of the rendezvous file.
struct Content {
  char magic[8] = {'f', 'i', 'r', 'n', 'n', 'c', 'c', 'l'};
  std::int32_t version = 0, size = 0;
  ncclUniqueId id = {};
};

/// Throws IoError for a NUL character: the system would take the text before it as the name.
void check_path(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    throw IoError(kOp, path.substr(0, path.find('\0')),
                  "a NUL character follows this part of the path",
                  "give a path without NUL characters");
}

}  // namespace

IdFile::IdFile(const std::string& path, int size) : path_(path) {
  check_path(path);
  std::error_code error;
  if (std::filesystem::exists(path, error))
    throw IoError(kOp, path, "there is such a file already",
                  "if no job is starting with it, remove it: a job that failed may have left it");
  const Nccl& lib = nccl();
  Content content{.version = lib.version, .size = size};
  if (const ncclResult_t r = lib.ncclGetUniqueId(&content.id); r != ncclSuccess)
    throw RankError(kOp, 0, 0, fmt::format("ncclGetUniqueId answered {}", describe(lib, r)),
                    "NCCL_DEBUG=WARN makes NCCL say more");
  id_ = content.id;
  // The file is renamed when complete, so that the others see the whole file or none.
  const std::string part = path + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&content), sizeof content);
  out.close();
  if (out.good()) std::filesystem::rename(part, path, error);
  if (!out.good() || error) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw IoError(kOp, path, "cannot be written", "all ranks need a folder that they share");
  }
}

IdFile::~IdFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

ncclUniqueId wait_for_id(const std::string& path, int rank, int size, double deadline) {
  check_path(path);
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    std::ifstream in(path, std::ios::binary);
    if (in) {
      Content content, expected{.version = nccl().version, .size = size};
      in.read(reinterpret_cast<char*>(&content), sizeof content);
      if (!in || std::memcmp(content.magic, expected.magic, sizeof content.magic) != 0)
        throw IoError(kOp, path, "is no file of nccl_group()", "give all ranks the same path");
      if (content.version != expected.version || content.size != size)
        throw IoError(kOp, path,
                      fmt::format("is of {} ranks with NCCL {}, and rank {} is of {} with NCCL {}",
                                  content.size, nccl_version_text(content.version), rank, size,
                                  nccl_version_text(expected.version)),
                      "all ranks need the same size and version");
      return content.id;
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited.count() > deadline)
      throw RankError(kOp, rank, 0,
                      fmt::format("rank 0 did not write {} within {} s", path, deadline),
                      "give all ranks the same path, in a folder that they share");
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace firn::dist
