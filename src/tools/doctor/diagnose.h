// What firn-doctor says of an Environment: the words, apart from the facts.
#pragma once

#include <string>
#include <vector>

#include "firn/firn.h"

namespace doctor {

enum class State : unsigned char {
  ok,
  note,     ///< worth knowing; everything works
  missing,  ///< firn does without it
  broken,   ///< asked for, and does not work
};
const char* to_string(State state) noexcept;

struct Finding {
  std::string section;  ///< "CPU"
  State state = State::ok;
  std::string what;
  std::string why;   ///< or what follows from it; empty if there is nothing to say
  std::string mend;  ///< what the user can do; empty if there is nothing to do
};

/// What the user has asked for, beside what the build and the environment variables ask.
struct Wishes {
  bool cuda = false;  ///< training on a CUDA device
};

/// All findings, section after section. Depends on the arguments alone.
std::vector<Finding> diagnose(const firn::Environment& environment, const Wishes& wishes = {});

/// Whether nothing is broken.
bool all_well(const std::vector<Finding>& findings) noexcept;

/// As text: a heading a section, a line a finding, with `why` and `mend` below it. `colours` are
/// those of a terminal.
std::string to_text(const std::vector<Finding>& findings, bool colours = false);
/// A JSON array of objects with the members of Finding.
std::string to_json(const std::vector<Finding>& findings);

}  // namespace doctor
