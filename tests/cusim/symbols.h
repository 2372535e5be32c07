// The program's own variables and code, by address.
#pragma once

#include <cstddef>
#include <string>

namespace cusim {

/// Whether the address is in the program's data segment.
bool is_static_data(const void* p);
/// Whether it is in what the program only reads: code, constants.
bool is_read_only(const void* p);
/// Whether it belongs to a variable inside a function. Of what kernels use, that is a __shared__
/// one; the others are variables of a device.
bool is_function_static(const void* p);

/// Function, file and line of an instruction, as far as the program has debugging information.
std::string source_line(const void* pc);

}  // namespace cusim
