// Begins and ends a profile.
#include "firn/profile.h"

#include <filesystem>
#include <utility>

#include "base/check.h"
#include "firn/warning.h"
#include "profile/parts.h"

namespace firn {
namespace {

constexpr const char* kOp = "Profile";

}  // namespace

Profile::Profile(ProfileOptions options) try : options_(std::move(options)) {
  FIRN_CHECK(options_.max_spans >= 0, kOp, "0 keeps no spans, only the tables", "max_spans is {}",
             options_.max_spans);
  if (!options_.trace.empty()) {
    profile_parts::check_trace_path(options_.trace);
    options_.trace = std::filesystem::absolute(options_.trace);  // a later chdir() has no effect
  }
  runtime::start_spans(
      {.keep = static_cast<std::size_t>(options_.max_spans), .nvtx = options_.nvtx});
  running_ = true;
}
FIRN_OUT_OF_MEMORY(kOp)

Profile::~Profile() {
  try {
    stop();
  } catch (const Error& e) {
    try {
      warn(kOp, e.what(), "call stop(), which throws it");
    } catch (...) {  // a handler of warnings has thrown
    }
  }
}

void Profile::stop() try {
  if (!running_) return;
  running_ = false;
  log_ = runtime::take_spans();
  if (!options_.trace.empty()) profile_parts::write_trace(log_, options_.trace);
}
FIRN_OUT_OF_MEMORY(kOp)

void Profile::require_stopped(const char* what) const {
  FIRN_CHECK(!running_, kOp, "call stop() first", "{} of a profile that is running", what);
}

double Profile::seconds() const {
  require_stopped("seconds()");
  return 1e-9 * static_cast<double>(log_.ns);
}

const runtime::SpanLog& Profile::log() const {
  require_stopped("log()");
  return log_;
}

std::vector<ProfileRow> Profile::rows(ProfileBy by) const try {
  require_stopped("rows()");
  require_named(kOp, "ProfileBy", by, ProfileBy::kernel);
  return profile_parts::rows_of(log_, by);
}
FIRN_OUT_OF_MEMORY(kOp)

std::string Profile::table(ProfileBy by, int rows) const try {
  require_stopped("table()");
  require_named(kOp, "ProfileBy", by, ProfileBy::kernel);
  FIRN_CHECK(rows >= 1, kOp, "ask for at least one row", "a table of {} rows", rows);
  return profile_parts::table_of(log_, by, rows);
}
FIRN_OUT_OF_MEMORY(kOp)

void Profile::write_trace(const std::string& path) const try {
  require_stopped("write_trace()");
  profile_parts::write_trace(log_, path);
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn
