// The sections of the page, in their order. Each is HTML, which is empty if the logs have no data
// for it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tools/report/log/run.h"
#include "tools/report/page/html.h"

namespace firn::report {

using Runs = std::vector<Run>;

// about.cpp
std::string headline(const Runs& runs);
std::string differing_settings(const Runs& runs);
std::string models(const Runs& runs);
std::string settings(const Runs& runs);
// curves.cpp
std::string loss_section(const Runs& runs);
std::string scale_section(const Runs& runs);
std::string gradient_section(const Runs& runs);
// epochs.cpp
std::string memory_section(const Runs& runs);
std::string time_section(const Runs& runs);
std::string metrics_section(const Runs& runs);
// confusion.cpp
std::string confusion_section(const Runs& runs);
// mistakes.cpp
std::string mistakes_section(const Runs& runs);
// guide.cpp
std::string accumulation_guide(const Runs& runs);

/// Returns a section with its heading. `content` is HTML.
std::string section(const std::string& id, const std::string& title, const std::string& content);
/// Returns a coloured mark for a run, if there are several, and its label.
std::string run_mark(const Runs& runs, std::size_t run);

/// Returns the epochs whose values are shown, in order: all, or those with the lowest and highest
/// values among their neighbours, about `most` at most.
std::vector<std::size_t> chosen_epochs(const std::vector<Epoch>& epochs, std::size_t most,
                                       const std::function<double(const Epoch&)>& value);
/// Returns "200 of 5,000 epochs"; empty if all are shown.
std::string thinned_note(std::size_t shown, std::size_t all, const std::string& what);

}  // namespace firn::report
