// Lines of a report that survive a failure. Every step prints one line, piece by piece, in a child
// process. A step that throws, hangs or dies ends only its own line; the next step runs in a new
// process.
#pragma once

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace probe {

/// Error after which nothing works in this process, for example a kernel's invalid access.
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

  /// Writes a space and the text, in which each line feed becomes a space.
  void add(const std::string& text);
  /// Writes the result of `text`, or the message of its exception, padded to `width`. Passes on a
  /// Broken.
  void cell(const std::function<std::string()>& text, int width = 0);

 private:
  std::FILE* out_;
};

struct Step {
  std::string name;
  std::function<void(Line&)> run;
  /// True if no other step runs in its process, because only the first use of a library shows the
  /// effect.
  bool alone = false;
};

/// Runs the steps in order, in as few child processes as failures allow. A step gets `seconds`. The
/// caller must not have used CUDA or started threads. Returns how many steps threw, died or took
/// too long. Throws std::runtime_error if no process can be started.
int run_steps(const std::vector<Step>& steps, std::FILE* out, unsigned seconds);

}  // namespace probe
