// Parts of reading and writing a config.json that both models share.
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/check.h"
#include "firn/io/record.h"
#include "firn/lm/config.h"
#include "lm/config_file.h"

namespace firn::lm {

SpecialIds read_special_ids(ConfigFile& file);

/// Throws unless each of the file's architectures is known.
void check_architectures(ConfigFile& file, std::initializer_list<std::string_view> known);

/// Calls check(), and throws its Error as one that names the file.
template <class Check>
void with_path(const ConfigFile& file, const Check& check) {
  try {
    check();
  } catch (const Error& e) {
    file.fail(e.message(), e.hint());
  }
}

/// Adds the ids that are set.
void add_ids(io::Record& json, const SpecialIds& ids);

}  // namespace firn::lm
