// Every function of firn that reads a file, as what random bytes can be given to. The seeded loop
// of the tests and libFuzzer (fuzzer.cpp, scripts/fuzz-readers) use the same list.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "data/files.h"

namespace firn::test {

struct Reader {
  std::string name;
  std::vector<Bytes> good;          ///< inputs that are read without an error
  std::vector<std::string> tokens;  ///< pieces that its format is made of
  /// Writes the input to a file of `folder` and reads that. May throw Error, and nothing else.
  std::function<void(const TempFolder& folder, const Bytes& input)> read;
  /// Bytes of tensors that reading may take beside those of the input.
  std::size_t allowance = 64 * 64;
  /// Whether every change is found. Else one input of 200 is read without an error, at least: the
  /// changes are small enough to get past the beginning.
  bool verified = false;
};

const std::vector<Reader>& readers();

/// Those of language models' tokenizers, which are in readers() too.
std::vector<Reader> tokenizer_readers();

}  // namespace firn::test
