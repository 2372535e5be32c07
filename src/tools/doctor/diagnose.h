// Findings of firn-doctor about an Environment. It has the words, and environment.h the facts.
#pragma once

#include <string>
#include <vector>

#include "firn/firn.h"

namespace doctor {

enum class State : unsigned char {
  ok,
  note,     ///< worth knowing; everything works
  missing,  ///< firn works without it
  broken,   ///< requested, but does not work
};
const char* to_string(State state) noexcept;

struct Finding {
  std::string section;  ///< "CPU"
  State state = State::ok;
  std::string what;
  std::string why;   ///< reason or consequence; may be empty
  std::string mend;  ///< remedy for the user; may be empty
};

/// The user's requests, besides those of the build and the environment variables.
struct Wishes {
  bool cuda = false;  ///< training on a CUDA device
};

/// Returns all findings, section by section. Depends on the arguments alone.
std::vector<Finding> diagnose(const firn::Environment& environment, const Wishes& wishes = {});

/// Returns true if nothing is broken.
bool all_well(const std::vector<Finding>& findings) noexcept;

/// Returns the findings as text, with a heading for each section, and a line for each finding with
/// `why` and `mend` below it. `colours` adds a terminal's colours.
std::string to_text(const std::vector<Finding>& findings, bool colours = false);
/// Returns a JSON array of objects with the members of Finding.
std::string to_json(const std::vector<Finding>& findings);

}  // namespace doctor
