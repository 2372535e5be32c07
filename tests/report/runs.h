// What the tests of firn-report share: logs of real runs, and what the program makes of them.
#pragma once

#include <string>
#include <vector>

#include "support/program/process.h"

namespace firn::testing {

/// Three epochs with validation, metrics, clipping and accumulation; a record for each step.
void plain_run(const std::string& log);
/// Two networks and two optimizers.
void gan_run(const std::string& log);
/// Ends in its second epoch, by a callback.
void stopped_run(const std::string& log);

/// firn-report with these arguments.
test::Ran report(const std::vector<std::string>& arguments);
/// make_log.py, which makes up a run.
void make_log(const std::vector<std::string>& options, const std::string& log);
/// What read_back.py finds wrong; empty if all is well.
std::string faults(const std::vector<std::string>& arguments);

std::string contents(const std::string& path);
void write_file(const std::string& path, const std::string& text);

}  // namespace firn::testing
