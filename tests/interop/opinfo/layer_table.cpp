// What layers are made of: borders and shuffles, pooling of rows and volumes, distances, bags.
#include <limits>

#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

/// PyTorch's list begins with the last axis: before, after, before, after, ...
Results padded(A a) {
  const auto pairs = a.list("pad");
  Axes before, after;
  for (int i = 0; i < x(a).rank(); ++i) {
    const std::size_t at = 2 * static_cast<std::size_t>(x(a).rank() - 1 - i);
    before.push_back(at + 1 < pairs.size() ? pairs[at] : 0);
    after.push_back(at + 1 < pairs.size() ? pairs[at + 1] : 0);
  }
  const std::string mode = a.text("mode", "constant");
  if (mode == "constant") return {pad(x(a), before, after, a.number("value", 0))};
  for (const PadMode m : {PadMode::reflect, PadMode::replicate, PadMode::circular})
    if (mode == to_string(m)) return {pad(x(a), before, after, m)};
  throw Refused("argument 'mode' is unknown");
}

/// Three sizes: a list, one number for all, or `otherwise`.
Size3 extent(A a, const char* name, Size3 otherwise) {
  const auto sizes = a.list(name);
  if (sizes.empty()) return otherwise;
  return sizes.size() == 1 ? Size3(sizes[0]) : Size3(sizes[0], sizes[1], sizes[2]);
}

Pool3dOptions pooling(A a) {
  return {.stride = extent(a, "stride", 0),
          .padding = extent(a, "padding", 0),
          .dilation = extent(a, "dilation", 1),
          .ceil_mode = a.flag("ceil_mode", false),
          .count_padding = a.flag("count_include_pad", true)};
}

/// None in a list stands for the input's own size.
Size3 volume_size(A a) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
  Size3 size = extent(a, "output_size", 1);
  if (size.d == kNone) size.d = x(a).size(-3);
  if (size.h == kNone) size.h = x(a).size(-2);
  if (size.w == kNone) size.w = x(a).size(-1);
  return size;
}
std::int64_t row_size(A a) { return a.list("output_size").at(0); }

std::optional<std::int64_t> padding_idx(A a) {
  return a.has("padding_idx") ? std::optional(a.integer("padding_idx")) : std::nullopt;
}

Results embedded(A a) {
  if (const auto p = padding_idx(a)) return {embedding(x(a), a.tensor("index"), *p)};
  return {embedding(x(a), a.tensor("index"))};
}

Results bags(A a) {
  const std::string mode = a.text("mode", "mean");
  return {embedding_bag(x(a), a.tensor("index"),
                        {.mode = mode == "sum"    ? BagMode::sum
                                 : mode == "mean" ? BagMode::mean
                                                  : BagMode::max,
                         .offsets = a.tensor_or_none("offsets"),
                         .per_sample_weights = a.tensor_or_none("per_sample_weights"),
                         .include_last_offset = a.flag("include_last_offset", false),
                         .padding_idx = padding_idx(a)})};
}

}  // namespace

std::vector<Entry> layer_entries() {
  return {
      {"nn.functional.pad/constant", "input pad mode value", Sums::no, padded},
      {"constant_pad_nd", "input pad value", Sums::no, padded},
      {"nn.functional.pad/reflect", "input pad mode value", Sums::yes, padded},
      {"nn.functional.pad/replicate", "input pad mode value", Sums::yes, padded},
      {"nn.functional.pad/circular", "input pad mode value", Sums::yes, padded},
      {"nn.functional.pixel_shuffle", "input upscale_factor", Sums::no,
       [](A a) -> Results { return {pixel_shuffle(x(a), a.integer("upscale_factor"))}; }},
      {"nn.functional.pixel_unshuffle", "input downscale_factor", Sums::no,
       [](A a) -> Results { return {pixel_unshuffle(x(a), a.integer("downscale_factor"))}; }},
      {"nn.functional.channel_shuffle", "input groups", Sums::no,
       [](A a) -> Results { return {channel_shuffle(x(a), a.integer("groups"))}; }},
      {"nn.functional.max_pool3d",
       "input kernel_size stride padding dilation ceil_mode return_indices!", Sums::yes,
       [](A a) -> Results { return {max_pool3d(x(a), extent(a, "kernel_size", 1), pooling(a))}; }},
      {"nn.functional.avg_pool3d",
       "input kernel_size stride padding ceil_mode count_include_pad divisor_override!", Sums::yes,
       [](A a) -> Results { return {avg_pool3d(x(a), extent(a, "kernel_size", 1), pooling(a))}; }},
      {"nn.functional.adaptive_max_pool1d", "input output_size return_indices!", Sums::yes,
       [](A a) -> Results { return {adaptive_max_pool1d(x(a), row_size(a))}; }},
      {"nn.functional.adaptive_avg_pool1d", "input output_size", Sums::yes,
       [](A a) -> Results { return {adaptive_avg_pool1d(x(a), row_size(a))}; }},
      {"nn.functional.adaptive_max_pool3d", "input output_size return_indices!", Sums::yes,
       [](A a) -> Results { return {adaptive_max_pool3d(x(a), volume_size(a))}; }},
      {"nn.functional.adaptive_avg_pool3d", "input output_size", Sums::yes,
       [](A a) -> Results { return {adaptive_avg_pool3d(x(a), volume_size(a))}; }},
      {"nn.functional.local_response_norm", "input size alpha beta k", Sums::yes,
       [](A a) -> Results {
         return {local_response_norm(x(a), a.integer("size"), a.number("alpha", 1e-4),
                                     a.number("beta", 0.75), a.number("k", 1))};
       }},
      {"nn.functional.cosine_similarity", "input other dim eps", Sums::yes,
       [](A a) -> Results {
         return {cosine_similarity(x(a), a.tensor("other"), a.integer("dim", 1),
                                   a.number("eps", 1e-8))};
       }},
      {"nn.functional.pairwise_distance", "input other p eps keepdim", Sums::yes,
       [](A a) -> Results {
         return {pairwise_distance(x(a), a.tensor("other"),
                                   {.p = a.number("p", 2),
                                    .eps = a.number("eps", 1e-6),
                                    .keepdims = a.flag("keepdim", false)})};
       }},
      {"nn.functional.embedding",
       "input index padding_idx max_norm! norm_type? scale_grad_by_freq! sparse!", Sums::yes,
       embedded},
      {"nn.functional.embedding_bag",
       "input index offsets max_norm! norm_type? scale_grad_by_freq! mode sparse! "
       "per_sample_weights include_last_offset padding_idx",
       Sums::yes, bags},
  };
}

}  // namespace firn::interop
