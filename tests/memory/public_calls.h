// The calls of firn's public headers that may change something.
#pragma once

#include <set>
#include <string>

namespace firn::testing {

/// "Optimizer::set_lr", "nn::convert_batch_norm", "fill_": functions that return nothing, or whose
/// names end in "_" or begin with "set_", "add_" or "remove_"; member functions that are not const;
/// others that are given something by a reference or a pointer that is not const. Left out are
/// constructors, operators but for +=, -=, *=, /= and ++, forward(), what is private, and what
/// stands in a namespace `detail`.
std::set<std::string> changing_calls();

/// The same of one header's text.
std::set<std::string> changing_calls_in(const std::string& text);

}  // namespace firn::testing
