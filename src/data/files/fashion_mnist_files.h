// Finds the files of FashionMNIST, for load_fashion_mnist() and for descriptions of a machine.
#pragma once

#include <string>

namespace firn::data {

/// Returns the folder that load_fashion_mnist(folder) reads. Throws IoError, as that does, if there
/// is no such folder or one of the four files is missing. Opens no file.
std::string find_fashion_mnist(const std::string& folder = {});

}  // namespace firn::data
