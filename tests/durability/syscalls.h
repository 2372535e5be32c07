// The system calls that write files, as a test sees and disturbs them. The program defines write(),
// fsync(), rename() and the like itself; the library, which is linked statically, calls these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace firn::testing {

/// One call below the folder of a plan. Paths are relative to that folder: "" is the folder itself.
struct Call {
  std::string name;         ///< "write", "fsync", "open": the function, without at and 64
  std::string path;         ///< what it is about; of a descriptor, what it has open
  std::string target = {};  ///< of rename()
  std::string data = {};    ///< the bytes that write() got
  std::int64_t offset = 0;  ///< where write() begins, or the length for ftruncate()
  int flags = 0;            ///< of open()
  std::int64_t result = 0;
  int error = 0;  ///< errno if the result is negative

  bool creates() const;
  bool is_done() const { return result >= 0; }
};
std::string to_string(const Call& call);

/// What happens to a call instead of what it asks for.
struct Fault {
  enum class Kind : std::uint8_t {
    none,
    error,        ///< fails with `error`, undone; close() closes all the same, as Linux does
    error_after,  ///< is done, and reports `error`
    shortened,    ///< write() takes `bytes` bytes
    kill_before,  ///< the process ends
    kill_within,  ///< half of the bytes are written, then the process ends
    kill_after,
  };
  Kind kind = Kind::none;
  int error = 0;
  std::size_t bytes = 0;
};
using Rule = std::function<Fault(const Call&, std::size_t index)>;

/// While alive, the calls of this thread about files of `folder` are recorded, and `rule` disturbs
/// them. Calls of other threads and about other files are the system's own.
class Plan {
 public:
  /// `flush` is false if fsync() need not reach the disk, which takes milliseconds.
  explicit Plan(const std::filesystem::path& folder, Rule rule = {}, bool flush = false);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const std::vector<Call>& calls() const noexcept { return calls_; }

  struct Seen;  ///< what the calls see of it
 private:
  friend struct Seen;
  std::filesystem::path folder_;
  Rule rule_;
  bool flush_;
  std::vector<Call> calls_;
};

/// A rule for one call, by its index.
Rule at(std::size_t index, Fault fault);

/// Descriptors that this process has open.
std::size_t open_descriptors();

}  // namespace firn::testing
