// What a run says beside fit(): its set-up, its end, and its own part of the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/data/fashion_mnist.h"
#include "firn/optim/optimizer.h"
#include "firn/train/fit.h"
#include "options.h"
#include "training.h"

namespace sample {

/// Prints the set-up.
void print_start(const Options& options, const firn::data::FashionMnist& set,
                 std::int64_t parameters, const firn::optim::Optimizer& optimizer);
/// Before its last line comes the hash, unless it is empty.
void print_end(const Evaluation& tested, const std::string& hash);
/// Prints the nodes of a graph, one a line, and their number.
void print_graph(const std::vector<std::string>& nodes);

/// What the log says of the program: its options and the set.
firn::train::Record settings_of(const Options& options, const firn::data::FashionMnist& set,
                                std::int64_t parameters);
/// What the log says of an epoch beside numbers.
void describe(const Evaluation& tested, const Options& options, firn::train::EpochReport& report);

}  // namespace sample
