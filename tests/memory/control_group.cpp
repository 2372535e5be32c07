// A process in a control group of the system: it gets an error where it would be killed. Where no
// group can be made, as without root, the test says so and does nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/control_groups.h"
#include "support/catch.h"

namespace fs = std::filesystem;
using firn::ControlGroup;

namespace {

bool write(const fs::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text << std::flush;
  return static_cast<bool>(out);
}

/// A group within that of this process, whose limit is 300 MiB.
class Group {
 public:
  Group() {
    for (const ControlGroup& g : firn::control_groups("memory")) {
      const fs::path parent(g.folder);
      std::error_code error;
      if (!fs::is_directory(parent, error)) continue;
      const fs::path folder = parent / ("firn-test-" + std::to_string(::getpid()));
      if (!fs::create_directory(folder, error)) continue;
      if (write(folder / (g.unified ? "memory.max" : "memory.limit_in_bytes"), "314572800")) {
        folder_ = folder;
        // Without swap, where that can be said.
        write(folder / (g.unified ? "memory.swap.max" : "memory.swappiness"), "0");
        return;
      }
      fs::remove(folder, error);
    }
  }
  ~Group() {
    std::error_code error;
    if (!folder_.empty()) fs::remove(folder_, error);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  const fs::path& folder() const noexcept { return folder_; }

 private:
  fs::path folder_;
};

}  // namespace

TEST_CASE("a process in a control group is told of its limit, and not killed", "[memory][host]") {
  const Group group;
  if (group.folder().empty()) {
    WARN("no control group can be made here: this needs root, and cgroups that can be written");
    return;
  }
  for (const std::size_t heap : {std::size_t{0}, std::size_t{80}}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (!write(group.folder() / "cgroup.procs", std::to_string(::getpid()))) ::_exit(3);
      const std::string mib = std::to_string(heap);
      ::dup2(ends[1], 1);
      ::execl(FIRN_FILL_GROUP, "firn_fill_group", mib.c_str(), nullptr);
      ::_exit(4);
    }
    ::close(ends[1]);
    std::string out;
    char buffer[64];
    for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      out.append(buffer, static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO("heap " << heap << " MiB, said: " << out);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    const int filled = out.empty() ? 0 : std::stoi(out);
    CHECK(filled > 100);
    CHECK(filled < static_cast<int>(300 - heap));
  }
}
