// Where the files of FashionMNIST are, for load_fashion_mnist() and for descriptions of a machine.
#pragma once

#include <string>

namespace firn::data {

/// The folder that load_fashion_mnist(folder) reads. Throws IoError as it does if there is none, or
/// if one of the four files is missing. Opens no file.
std::string find_fashion_mnist(const std::string& folder = {});

}  // namespace firn::data
