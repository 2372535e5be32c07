#include "runtime/offload/offload.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "firn/memory.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "runtime/memory/allocator.h"

namespace firn::memory {
namespace {

constexpr const char* kOp = "offload";

// ---- Pinned memory ----

/// Pinned memory, and the end of the work that uses it.
struct Pinned {
  PinnedMemory memory;
  Event used;
};

/// Blocks whose sizes are powers of two. Allocating one takes milliseconds, so they are reused.
class PinnedPool {
 public:
  Pinned take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(),
                                    [size](const Pinned& p) { return p.memory.bytes() == size; });
    if (found == idle_.end()) {
      idle_.reserve(idle_.size() + ++made_);  // giving back cannot fail
      return {PinnedMemory(size), Event()};
    }
    Pinned block = std::move(*found);
    idle_.erase(found);
    return block;
  }
  void give(Pinned block) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<Pinned> idle_;
  std::size_t made_ = 0;
};

PinnedPool& pinned_pool() {
  static PinnedPool& all = *new PinnedPool;  // tensors may outlive static objects
  return all;
}

// ---- The file ----

constexpr const char* kHint = "set FIRN_OFFLOAD_DIR to a folder with room";

std::string folder() {
  for (const char* name : {"FIRN_OFFLOAD_DIR", "TMPDIR"}) {
    const char* const value = std::getenv(name);
    if (value && *value) return value;
  }
  return "/tmp";
}

/// Returns the descriptor of a new file that the system removes when it is closed.
int open_unnamed(const std::string& folder) {
  int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (file >= 0) return file;
  std::string path = folder + "/firn-offload-XXXXXX";  // a file system without O_TMPFILE
  file = ::mkostemp(path.data(), O_CLOEXEC);
  const int error = errno;
  FIRN_CHECK(file >= 0, kOp, kHint, "cannot make a file in {}: {}", folder, std::strerror(error));
  ::unlink(path.c_str());
  return file;
}

/// Returns zeroed memory that is a file without a name. Its blocks are reserved, so a full disk is
/// an error here, not a signal later.
void* map_file(std::size_t bytes) {
  const std::string in = folder();
  const int file = open_unnamed(in);
  int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    error = errno;
  }
  ::close(file);
  FIRN_CHECK(memory != MAP_FAILED, kOp, kHint, "no room for {} bytes in a file in {}: {}", bytes,
             in, std::strerror(error));
  return memory;
}

/// One file without a name, which hands out ranges.
class SpillFile {
 public:
  std::size_t take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (descriptor_ < 0) {
      folder_ = folder();
      descriptor_ = open_unnamed(folder_);
    }
    for (auto free = free_.begin(); free != free_.end(); ++free) {
      const auto [offset, size] = *free;
      if (size < bytes) continue;
      if (size > bytes) free_.emplace(offset + bytes, size - bytes);
      free_.erase(offset);
      return offset;
    }
    return std::exchange(end_, end_ + bytes);
  }
  void give(std::size_t offset, std::size_t bytes) noexcept try {
    const std::lock_guard lock(mutex_);
    auto at = free_.emplace(offset, bytes).first;
    if (const auto next = std::next(at); next != free_.end() && offset + bytes == next->first) {
      at->second += next->second;
      free_.erase(next);
    }
    if (at != free_.begin()) {
      const auto before = std::prev(at);
      if (before->first + before->second == offset) {
        before->second += at->second;
        free_.erase(at);
        at = before;
      }
    }
    if (at->first + at->second != end_) return;
    end_ = at->first;
    free_.erase(at);
    if (ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) return;  // a later call may do it
  } catch (const std::bad_alloc&) {  // this range of the file is not used again
  }

  void write(const void* from, std::size_t bytes, std::size_t offset) {
    const auto* p = static_cast<const char*>(from);
    while (bytes > 0) {
      const ssize_t n = ::pwrite(descriptor_, p, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write", bytes, n < 0 ? errno : ENOSPC);
      p += n;
      offset += static_cast<std::size_t>(n);
      bytes -= static_cast<std::size_t>(n);
    }
  }
  void read(void* to, std::size_t bytes, std::size_t offset) {
    auto* p = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = ::pread(descriptor_, p, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("read", bytes, n < 0 ? errno : EIO);
      p += n;
      offset += static_cast<std::size_t>(n);
      bytes -= static_cast<std::size_t>(n);
    }
  }

 private:
  [[noreturn]] void fail(const char* what, std::size_t bytes, int error) const {
    firn::detail::fail(kOp, kHint, "cannot {} {} bytes of a temporary file in {}: {}", what, bytes,
                       folder_, std::strerror(error));
  }

  std::mutex mutex_;
  int descriptor_ = -1;
  std::string folder_;
  std::size_t end_ = 0;
  std::map<std::size_t, std::size_t> free_;  ///< ranges before end_: offset, bytes
};

SpillFile& spill_file() {
  static SpillFile& file = *new SpillFile;
  return file;
}

}  // namespace

Ref<Storage> allocate_elsewhere(std::size_t bytes, Device device, Elsewhere where) {
  const std::size_t size = std::max<std::size_t>(bytes, 64);
  if (where == Elsewhere::host) {
    void* const memory = pinned_allocate(size);
    try {
      return Storage::adopt(memory, size, device,
                            [](void* p, std::size_t) noexcept { pinned_release(p); });
    } catch (...) {
      pinned_release(memory);
      throw;
    }
  }
  void* const memory = map_file(size);
  try {
    return Storage::adopt(memory, size, device,
                          [](void* p, std::size_t n) noexcept { ::munmap(p, n); });
  } catch (...) {
    ::munmap(memory, size);
    throw;
  }
}

struct Offloaded::Bytes {
  std::size_t bytes;
  Device device;
  std::optional<Pinned> pinned;
  std::optional<std::size_t> offset;  ///< place in the file
};

Offloaded::Offloaded(const Storage& from, Elsewhere where)
    : bytes_(new Bytes{from.bytes(), from.device(), {}, {}}) {
  runtime::refuse_capture(kOp, from.device(),
                          "its place in memory of the host would be used again");
  Bytes& b = *bytes_;
  if (runtime::dry_run() || b.bytes == 0) return;
  if (where == Elsewhere::host) {
    const Stream stream = current_stream(b.device);
    b.pinned.emplace(pinned_pool().take(b.bytes));
    b.pinned->used.block(stream);
    copy_bytes_async(b.pinned->memory.data(), Device::cpu(), from.data(), b.device, b.bytes);
    b.pinned->used.record(stream);
    return;
  }
  std::vector<char> staged;
  const void* bytes = from.data();
  if (!b.device.is_cpu()) {
    staged.resize(b.bytes);
    copy_bytes(staged.data(), Device::cpu(), from.data(), b.device, b.bytes);
    bytes = staged.data();
  }
  const std::size_t offset = spill_file().take(b.bytes);
  try {
    spill_file().write(bytes, b.bytes, offset);
  } catch (...) {
    spill_file().give(offset, b.bytes);
    throw;
  }
  b.offset = offset;
}

Offloaded::~Offloaded() {
  if (bytes_->pinned) pinned_pool().give(std::move(*bytes_->pinned));
  if (bytes_->offset) spill_file().give(*bytes_->offset, bytes_->bytes);
}

Ref<Storage> Offloaded::fetch() {
  Bytes& b = *bytes_;
  Ref<Storage> to = Storage::allocate(b.bytes, b.device);
  if (b.pinned) {
    const Stream stream = current_stream(b.device);
    b.pinned->used.block(stream);
    copy_bytes_async(to->data(), b.device, b.pinned->memory.data(), Device::cpu(), b.bytes);
    b.pinned->used.record(stream);
  } else if (b.offset) {
    if (b.device.is_cpu()) {
      spill_file().read(to->data(), b.bytes, *b.offset);
    } else {
      std::vector<char> staged(b.bytes);
      spill_file().read(staged.data(), b.bytes, *b.offset);
      copy_bytes(to->data(), b.device, staged.data(), Device::cpu(), b.bytes);
    }
  }
  return to;
}

}  // namespace firn::memory
