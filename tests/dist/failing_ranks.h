// The ways in which ranks step together, and the text of what a call throws, for tests of ranks
// that fail.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <typeinfo>
#include <vector>

#include "firn/dist/distribute.h"
#include "firn/error.h"
#include "firn/optim/step_options.h"

namespace firn::testing {

/// A way in which ranks make steps together.
struct RankSetting {
  std::string name;
  optim::StepOptions step = {};
  dist::DistributeOptions over = {};
  bool exact() const { return step.exact.chunk > 0; }
};

/// All stages of ZeRO, with overlap and in exact mode where these go with it.
inline std::vector<RankSetting> rank_settings(const optim::StepOptions& plain = {}) {
  optim::StepOptions exact = plain;
  exact.exact.chunk = 2;
  std::vector<RankSetting> out;
  for (int zero = 0; zero <= 3; ++zero) {
    out.push_back({fmt::format("zero {}", zero), plain, {.zero = zero}});
    out.push_back({fmt::format("exact, zero {}", zero), exact, {.zero = zero}});
  }
  out.push_back({"overlap", plain, {.overlap = true}});
  out.push_back({"zero 3, overlap", plain, {.zero = 3, .overlap = true}});
  return out;
}

/// Returns the text of what fn() throws; empty if it throws nothing. For another exception than
/// Error, the text begins with "no Error".
template <class Fn>
std::string thrown_by(const Fn& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return fmt::format("no Error but {}: {}", typeid(e).name(), e.what());
  } catch (...) {
    return "no Error and no std::exception";
  }
  return {};
}

}  // namespace firn::testing
