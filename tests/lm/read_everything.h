// Reads all that a GGUF file has.
#pragma once

#include <string>

#include "firn/firn.h"

namespace firn::test {

/// Calls every function that reads values with every key, and reads every tensor. Each may throw
/// IoError, and nothing else.
inline void read_everything(const lm::GgufFile& file) {
  const auto attempt = [](auto&& get) {
    try {
      get();
    } catch (const IoError&) {
    }
  };
  for (const lm::GgufEntry& e : file.entries()) {
    attempt([&] { file.text(e.key); });
    attempt([&] { file.flag(e.key); });
    attempt([&] { file.integer(e.key, 0, 1000); });
    attempt([&] { file.real(e.key); });
    attempt([&] { file.texts(e.key); });
    attempt([&] { file.flags(e.key); });
    attempt([&] { file.integers(e.key); });
    attempt([&] { file.reals(e.key); });
  }
  for (const std::string& name : file.names()) {
    attempt([&] { file.read(name).sum(); });
    attempt([&] { file.blocks(name).sum(); });
  }
}

}  // namespace firn::test
