// The switches of the kernels that the environment sets. Each case reads its switch in a child
// process, whose environment it changes first.
#include "kernels/settings/settings.h"

#include <string>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/in_child.h"

namespace firn::testing {
namespace {

std::string read_epilogues() {
  switch (kernels::epilogues().load()) {
    case kernels::Epilogues::fused:
      return "fused";
    case kernels::Epilogues::unfused:
      return "unfused";
    default:
      return "automatic";
  }
}

std::string read_split_k() {
  return kernels::split_k().load() == kernels::SplitK::by_depth ? "by_depth" : "automatic";
}

std::string read_conv_path() {
  return kernels::conv_path().load() == kernels::ConvPath::im2col ? "im2col" : "automatic";
}

std::string read_attention_path() {
  switch (kernels::attention_path().load()) {
    case kernels::AttentionPath::own:
      return "own";
    case kernels::AttentionPath::cudnn:
      return "cudnn";
    default:
      return "automatic";
  }
}

TEST_CASE("settings: FIRN_EPILOGUES is one of its words, or an error that lists them", "[host]") {
  CHECK(in_child("FIRN_EPILOGUES", "unfused", read_epilogues) == "unfused");
  CHECK(in_child("FIRN_EPILOGUES", "", read_epilogues) == "automatic");
  CHECK(in_child("FIRN_EPILOGUES", "Fused", read_epilogues) ==
        "[FIRN_EPILOGUES] is 'Fused'; hint: set it to one of: fused, unfused, automatic");
}

TEST_CASE("settings: FIRN_SPLIT_K is one of its words, or an error that lists them", "[host]") {
  CHECK(in_child("FIRN_SPLIT_K", "by_depth", read_split_k) == "by_depth");
  CHECK(in_child("FIRN_SPLIT_K", "", read_split_k) == "automatic");
  CHECK(in_child("FIRN_SPLIT_K", "off", read_split_k) ==
        "[FIRN_SPLIT_K] is 'off'; hint: set it to one of: by_depth, automatic");
}

TEST_CASE("settings: FIRN_CONVOLUTIONS is one of its words, or an error that lists them",
          "[host]") {
  CHECK(in_child("FIRN_CONVOLUTIONS", "im2col", read_conv_path) == "im2col");
  CHECK(in_child("FIRN_CONVOLUTIONS", "cudnn", read_conv_path) ==
        "[FIRN_CONVOLUTIONS] is 'cudnn'; hint: set it to one of: im2col, automatic");
}

TEST_CASE("settings: FIRN_ATTENTION is one of its words, or an error that lists them", "[host]") {
  CHECK(in_child("FIRN_ATTENTION", "own", read_attention_path) == "own");
  CHECK(in_child("FIRN_ATTENTION", "cudnn", read_attention_path) == "cudnn");
  CHECK(in_child("FIRN_ATTENTION", "", read_attention_path) == "automatic");
  CHECK(in_child("FIRN_ATTENTION", "flash", read_attention_path) ==
        "[FIRN_ATTENTION] is 'flash'; hint: set it to one of: own, cudnn, automatic");
}

TEST_CASE("describe() of the CPU is describe_cpu(), of a device that is not there an error",
          "[host]") {
  CHECK(describe(Device::cpu()) == describe_cpu());
  CHECK_THROWS_AS(describe(Device::cuda(100)), DeviceError);
}

}  // namespace
}  // namespace firn::testing
