// The types of tensors in GGUF files: names, and the sizes of blocks.
#include "firn/lm/gguf_type.h"

#include "support/catch.h"

using firn::lm::GgufType;

TEST_CASE("GgufType: names of the format, also of types that are not read") {
  CHECK(to_string(GgufType::f32) == "F32");
  CHECK(to_string(GgufType::bf16) == "BF16");
  CHECK(to_string(GgufType::q4_1) == "Q4_1");
  CHECK(to_string(GgufType::q6_k) == "Q6_K");
  CHECK(to_string(static_cast<GgufType>(16)) == "IQ2_XXS");
  CHECK(to_string(static_cast<GgufType>(4)) == "type 4");
  CHECK(to_string(static_cast<GgufType>(4294967295u)) == "type 4294967295");
}

TEST_CASE("GgufType: a block of a type that is not read has no size") {
  for (const std::uint32_t number : {4u, 6u, 16u, 28u, 41u, 4294967295u}) {
    CHECK(block_elements(static_cast<GgufType>(number)) == 0);
    CHECK(block_bytes(static_cast<GgufType>(number)) == 0);
  }
}
