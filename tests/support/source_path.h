// Files of the repository that tests read. One file knows where it lies, so that compiled tests are
// the same in every checkout.
#pragma once

#include <string>

namespace firn::testing {

/// The full path of `relative`, which is relative to the repository:
/// "tests/goldens/rnn.safetensors".
std::string source_path(const std::string& relative);

}  // namespace firn::testing
