// The table of scripts/interop: PyTorch's operations, and how each is said in firn. An operation is
// added by one entry in table.cpp or one of the files beside it.
#pragma once

#include <string>
#include <vector>

#include "interop/wire.h"

namespace firn::interop {

/// Whether a result sums up elements of its operands, so that its tolerance grows with their
/// number.
enum class Sums { no, yes };

struct Entry {
  /// The OpInfo's name in PyTorch and, after a slash, its variant: "div/no_rounding_mode".
  const char* name;
  /// Its parameters in order. name? has no influence on the values. name! is refused unless it is
  /// None or False. *name takes all that follow.
  const char* parameters;
  Sums sums;
  std::vector<Tensor> (*call)(const Arguments&);
};

const std::vector<Entry>& table();
/// Those of the files of these names.
std::vector<Entry> elementwise_entries();
std::vector<Entry> order_entries();
std::vector<Entry> transformer_entries();
std::vector<Entry> loss_entries();
std::vector<Entry> position_entries();
std::vector<Entry> layer_entries();
std::vector<Entry> image_entries();
std::vector<Entry> product_entries();
std::vector<Entry> linalg_entries();
std::vector<Entry> index_entries();
std::vector<Entry> derived_entries();
/// nullptr if the table has none of that name.
const Entry* find(const std::string& name);

}  // namespace firn::interop
