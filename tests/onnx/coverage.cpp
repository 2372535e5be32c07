// Every public operation is exported or refused by name: none falls between the two.
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "onnx/rules.h"
#include "kernels/math/binary.h"
#include "kernels/math/ternary.h"
#include "kernels/math/unary.h"
#include "support/catch.h"
#include "support/source_path.h"

namespace firn::testing {
namespace {

bool has_rule(const std::string& op) { return io::onnx::rule_of(op) != nullptr; }
bool is_refused(const std::string& op) {
  for (const io::onnx::Refusal& r : io::onnx::refusals())
    if (r.op == op) return true;
  return false;
}

/// Functions that run operations of other names.
const std::map<std::string, std::string> kRuns = {{"flatten", "reshape"},
                                                  {"unsqueeze", "reshape"},
                                                  {"squeeze", "reshape"},
                                                  {"transpose", "permute"},
                                                  {"split", "slice"},
                                                  {"mse_loss", "squared_error"},
                                                  {"l1_loss", "absolute_error"},
                                                  {"huber_loss", "huber"},
                                                  {"info_nce", "cross_entropy"},
                                                  {"masked_fill", "where"},
                                                  {"count_nonzero", "sum"},
                                                  {"quantile", "sort"},
                                                  {"narrow", "slice"},
                                                  {"chunk", "slice"},
                                                  {"movedim", "permute"},
                                                  {"broadcast_to", "expand"},
                                                  {"meshgrid", "expand"},
                                                  {"flip", "index_select"},
                                                  {"index", "index_select"},
                                                  {"roll", "cat"},
                                                  {"rot90", "index_select"},
                                                  {"repeat", "expand"},
                                                  {"tile", "expand"},
                                                  {"repeat_interleave", "expand"},
                                                  {"tril", "where"},
                                                  {"triu", "where"},
                                                  {"kthvalue", "topk"},
                                                  {"pixel_shuffle", "permute"},
                                                  {"pixel_unshuffle", "permute"},
                                                  {"channel_shuffle", "permute"},
                                                  {"max_pool3d", "max_pool2d"},
                                                  {"avg_pool3d", "avg_pool2d"},
                                                  {"adaptive_max_pool3d", "adaptive_max_pool2d"},
                                                  {"adaptive_avg_pool3d", "adaptive_avg_pool2d"},
                                                  {"upsample3d", "upsample2d"},
                                                  {"lp_pool1d", "avg_pool1d"},
                                                  {"lp_pool2d", "avg_pool2d"},
                                                  {"local_response_norm", "avg_pool2d"},
                                                  {"cosine_similarity", "norm"},
                                                  {"pairwise_distance", "norm"},
                                                  {"normalize", "norm"},
                                                  {"relu6", "hardtanh"},
                                                  {"clamp_min", "clamp"},
                                                  {"clamp_max", "clamp"},
                                                  {"max_with_indices", "gather"},
                                                  {"min_with_indices", "gather"},
                                                  {"tanhshrink", "tanh"},
                                                  {"glu", "sigmoid"},
                                                  {"embedding_bag", "index_add"},
                                                  {"bucketize", "searchsorted"},
                                                  {"hstack", "cat"},
                                                  {"vstack", "cat"},
                                                  {"dstack", "cat"},
                                                  {"column_stack", "cat"},
                                                  {"unbind", "select"},
                                                  {"tensor_split", "slice"},
                                                  {"unflatten", "reshape"},
                                                  {"diag_embed", "diagonal_scatter"},
                                                  {"trace", "diagonal"},
                                                  {"diff", "sub"},
                                                  {"nansum", "sum"},
                                                  {"nanmean", "sum"},
                                                  {"trapezoid", "sum"},
                                                  {"cov", "matmul"},
                                                  {"corrcoef", "matmul"},
                                                  {"kron", "mul"},
                                                  {"einsum", "matmul"},
                                                  {"tensordot", "matmul"},
                                                  {"outer", "mul"},
                                                  {"dot", "matmul"},
                                                  {"vecdot", "matmul"},
                                                  {"bmm", "matmul"},
                                                  {"addmm", "matmul"},
                                                  {"baddbmm", "matmul"},
                                                  {"bilinear", "linear"},
                                                  {"svdvals", "svd"},
                                                  {"eigvalsh", "eigh"},
                                                  {"matrix_norm", "norm"},
                                                  {"matrix_power", "matmul"},
                                                  {"bce_loss", "bce"}};
/// Without tensors among their operands; drawing is refused where it happens (refusals.cpp).
const std::set<std::string> kMakes = {
    "full",      "full_like", "rand_like", "randn_like",      "ones", "empty_like", "zeros_like",
    "ones_like", "arange",    "eye",       "numbers_between", "rand", "randn",      "randperm",
    "linspace",  "uniform",   "normal"};
/// Recorded as the value that they have already.
const std::set<std::string> kMoves = {"to_device", "clone", "contiguous", "channels_last"};
/// Switches of products.
const std::set<std::string> kSettings = {"allow_tf32", "allow_bf16x3", "require_batch_invariance",
                                         "allow_nondeterministic"};

/// The names of the functions that the headers of operations declare.
std::set<std::string> public_functions() {
  std::set<std::string> out;
  const std::regex declaration(
      R"(^(?:inline )?(?:Tensor|Tensor&|std::vector<Tensor>|Sorted|RecurrentResult|QR|SVD|Eigh|Slogdet|void|Loss) (\w+)\()");
  for (const char* header :
       {"attention", "channel_norm", "conv", "distance", "elementwise", "index", "linalg", "losses",
        "ops", "pool", "products", "rearrange", "recurrent", "reduce", "sort"}) {
    std::ifstream file(source_path(std::string("include/firn/ops/") + header + ".h"));
    REQUIRE(file.good());
    std::smatch m;
    for (std::string line; std::getline(file, line);)
      if (std::regex_search(line, m, declaration)) out.insert(m[1].str());
  }
  return out;
}

}  // namespace

TEST_CASE("onnx: every formula has a rule or a refusal, not both") {
  for (const math::UnaryInfo& op : math::kUnaryOps) {
    CAPTURE(op.name);
    CHECK(has_rule(op.name) != is_refused(op.name));
  }
  for (const math::TernaryInfo& op : math::kTernaryOps) {
    CAPTURE(op.name);
    CHECK(has_rule(op.name));
  }
  for (const math::BinaryInfo& op : math::kBinaryOps) {
    CAPTURE(op.name);
    CHECK(has_rule(op.name) != is_refused(op.name));
  }
}

TEST_CASE("onnx: every public operation has a rule or a refusal, not both") {
  const std::set<std::string> functions = public_functions();
  CHECK(functions.size() > 140);
  for (std::string name : functions) {
    CAPTURE(name);
    if (name.starts_with("operator")) continue;
    if (name == "fill_" || name == "zero_" || name == "copy_") {
      CHECK(has_rule(name));
      continue;
    }
    if (name.ends_with('_')) name.pop_back();
    if (kMakes.contains(name) || kMoves.contains(name) || kSettings.contains(name)) continue;
    const auto runs = kRuns.find(name);
    const std::string op = runs == kRuns.end() ? name : runs->second;
    CHECK(has_rule(op) != is_refused(op));
  }
}

TEST_CASE("onnx: no rule is written twice, and every refusal says what to do") {
  std::set<std::string_view> seen;
  for (const auto rules :
       {io::onnx::elementwise_rules(), io::onnx::shape_rules(), io::onnx::reduction_rules(),
        io::onnx::image_rules(), io::onnx::layer_rules()})
    for (const io::onnx::Rule& r : rules) {
      CAPTURE(std::string(r.op));
      CHECK(seen.insert(r.op).second);
    }
  for (const io::onnx::Refusal& r : io::onnx::refusals()) {
    CHECK_FALSE(r.why.empty());
    CHECK_FALSE(r.hint.empty());
  }
}

}  // namespace firn::testing
