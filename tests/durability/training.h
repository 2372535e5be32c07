// A small training whose whole state is saved and compared: network, optimizer, loader, streams.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace firn::testing {

/// With AddressSanitizer, where fork() alone takes 70 ms, fewer points are tried.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSlow = true;
#else
inline constexpr bool kSlow = false;
#endif

struct TrainingNet : nn::Module {
  nn::Linear in{6, 8};
  nn::Dropout drop{0.25};
  nn::Linear out{8, 3};
  FIRN_MEMBERS(in, drop, out)
  Tensor forward(const Tensor& x) override { return out(drop(relu(in(x)))); }
};

/// It has a random stream of its own, so that several trainings of one thread do not mix.
class Training {
 public:
  /// With f16 the loss scale is dynamic and begins at the largest, so that the first steps
  /// overflow. Two micro-steps make a cycle.
  explicit Training(DType dtype = f32, std::uint64_t seed = 3);

  void micro_step();
  /// Goes on until `count` micro-steps are done.
  void train_until(std::int64_t count);
  std::int64_t done() const noexcept { return done_; }
  void save(const std::string& path);
  void load(const std::string& path);
  /// Overwrites weights and counters, so that a load that writes nothing shows.
  void scramble();
  /// Names and bits of all that trains, and where the streams are.
  std::string bits() const;

 private:
  std::vector<io::RunPart> parts();

  DType dtype_;
  Generator stream_, noise_;
  std::unique_ptr<TrainingNet> net_;
  std::unique_ptr<optim::Adam> opt_;
  std::unique_ptr<data::Loader> loader_;
  std::int64_t done_ = 0;
};

/// An empty folder that is gone when the test ends, in memory if the system has a file system
/// there: a test saves thousands of files.
class FastFolder {
 public:
  FastFolder();
  ~FastFolder();
  FastFolder(const FastFolder&) = delete;
  FastFolder& operator=(const FastFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// The files of a folder: names and bytes.
using Snapshot = std::map<std::string, std::string>;
Snapshot snapshot_of(const std::filesystem::path& folder);
/// Makes a folder's files those of the snapshot.
void restore(const std::filesystem::path& folder, const Snapshot& files);
/// Whether the name is one of a temporary file of a save.
bool is_temporary(const std::string& name);
/// The files without temporary ones.
Snapshot without_temporaries(const Snapshot& files);
std::size_t temporaries_in(const Snapshot& files);

}  // namespace firn::testing
