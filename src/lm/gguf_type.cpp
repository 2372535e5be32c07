#include "firn/lm/gguf_type.h"

#include <fmt/core.h>

#include <iterator>

namespace firn::lm {
namespace {

/// Names by number: `ggml_type` in ggml.h. The empty ones were taken out of the format.
constexpr const char* kNames[] = {
    "F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
    "",        "",      "",       "MXFP4", "NVFP4"};

}  // namespace

std::string to_string(GgufType type) {
  const auto number = static_cast<std::uint32_t>(type);
  if (number < std::size(kNames) && *kNames[number] != '\0') return kNames[number];
  return fmt::format("type {}", number);
}

}  // namespace firn::lm
