// Merges the symbols of a piece: always the two neighbours of the lowest rank, from left to right.
#pragma once

#include <vector>

#include "lm/tokenizer/token_table.h"

namespace firn::lm::bpe {

/// Memory that one call of an encoder uses again and again.
struct Scratch {
  std::vector<Id> symbols;
  std::vector<MergeTable::Found> pairs;
};

/// Merges scratch.symbols until no two neighbours have a merge. A piece of n symbols takes time in
/// n log n.
void merge_symbols(const MergeTable& merges, Scratch& scratch);

}  // namespace firn::lm::bpe
