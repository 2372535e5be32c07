// Lines of a report that nothing can take along: every step prints one line, piece by piece, in a
// child process. A step that throws, hangs or dies ends its own line; the next one goes on in a new
// process.
#pragma once

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace probe {

/// Nothing further can work in this process, as after a kernel's invalid access.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The line that a step prints. Every piece is in the file as soon as it is known.
class Line {
 public:
  /// Writes "name:".
  Line(std::FILE* out, const std::string& name);
  /// Writes the end of the line.
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  /// Writes a space and the text, which must not hold a line feed: each becomes a space.
  void add(const std::string& text);
  /// Writes what `text` returns, or the message of what it throws, padded to `width`. Passes a
  /// Broken on.
  void cell(const std::function<std::string()>& text, int width = 0);

 private:
  std::FILE* out_;
};

struct Step {
  std::string name;
  std::function<void(Line&)> run;
  /// No other step runs in its process: for what only the first use of a library shows.
  bool alone = false;
};

/// Runs the steps in order, in as few child processes as their ends allow. A step gets `seconds`.
/// The caller must not have used CUDA or started threads. Returns how many steps ended badly:
/// threw, died or took too long. Throws std::runtime_error if no process can be started.
int run_steps(const std::vector<Step>& steps, std::FILE* out, unsigned seconds);

}  // namespace probe
