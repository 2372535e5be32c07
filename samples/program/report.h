// Prints what fit() does not: the set-up of a run, its graph, its part of the log, and a hash of
// the weights. Two runs with equal hashes have equal bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/optim/optimizer.h"
#include "program/training.h"

namespace sample {

/// Prints the set-up: set, model, run and step, one line each.
void print_start(const Options& options, const Training& training, std::int64_t parameters,
                 const firn::optim::Optimizer& optimizer);
/// Prints the nodes of a graph, one a line, and their number.
void print_graph(const std::vector<std::string>& nodes);
/// Prints an error on stderr, on one line and without control bytes.
void print_error(std::string message);

/// Returns the settings in the log: the program's options and the set.
firn::train::Record settings_of(const Options& options, const About& about, Training& training,
                                std::int64_t parameters, std::int64_t samples);

/// Returns true if this build can hash, because it was compiled with OpenSSL.
bool can_hash() noexcept;
/// Returns the SHA-256 of the elements of all parameters, in their order and row-major, as 64
/// hexadecimal digits. Throws Error unless can_hash().
std::string hash_of(const firn::nn::Module& model);

}  // namespace sample
