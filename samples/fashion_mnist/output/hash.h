// A hash of a model's weights: two runs that print the same one have the same bits.
#pragma once

#include <string>

#include "firn/nn/module.h"

namespace sample {

/// Whether this build can hash: it was compiled with OpenSSL.
bool can_hash() noexcept;
/// SHA-256 of the elements of all parameters, in their order and row-major, as 64 hexadecimal
/// digits. Throws Error unless can_hash().
std::string hash_of(const firn::nn::Module& model);

}  // namespace sample
