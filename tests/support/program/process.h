// Runs a program and catches what it prints, through pipes or on a terminal of a given width.
#pragma once

#include <string>
#include <vector>

namespace firn::test {

struct Ran {
  int exit_code = -1;  ///< 128 + signal where a signal ended it
  std::string out;     ///< stdout
  std::string err;     ///< stderr
};

/// `environment` holds NAME=value, or NAME to remove it. `interrupt_after`: SIGINT is sent once
/// stderr holds this text.
struct RunOptions {
  std::vector<std::string> environment = {};
  int terminal_columns = 0;  ///< above 0: stderr is a terminal of that width
  std::string interrupt_after = {};
  bool terminal_out = false;  ///< stdout is a terminal of that width, too
};

Ran run_program(const std::string& program, const std::vector<std::string>& arguments,
                const RunOptions& options = {});

std::vector<std::string> lines_of(const std::string& text);

}  // namespace firn::test
