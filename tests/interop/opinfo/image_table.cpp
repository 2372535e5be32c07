// Convolutions, resizing and windows, along one to three axes. The samples of composed.fold are in
// compositions.py: PyTorch has no OpInfo of it.
#include <limits>

#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

/// One number for each axis: a list, one number for all, or `otherwise`.
Size3 volume(A a, const char* name, std::int64_t otherwise) {
  const auto sizes = a.list(name);
  if (sizes.empty()) return otherwise;
  return sizes.size() == 1 ? Size3(sizes[0]) : Size3(sizes[0], sizes[1], sizes[2]);
}
Size2 extent(A a, const char* name, std::int64_t otherwise) {
  const auto sizes = a.list(name);
  if (sizes.empty()) return otherwise;
  return sizes.size() == 1 ? Size2(sizes[0]) : Size2(sizes[0], sizes[1]);
}
std::int64_t length(A a, const char* name, std::int64_t otherwise) {
  const auto sizes = a.list(name);
  return sizes.empty() ? otherwise : sizes[0];
}

/// The padding of convolutions: numbers, "same" or "valid".
template <class Padding, class Numbers>
Padding padding_of(A a, const Numbers& numbers) {
  if (!a.is<std::string>("padding")) {
    Padding padding = 0;
    padding.around = numbers(a, "padding", 0);
    return padding;
  }
  if (a.text("padding", "") == "same") return kSamePadding;
  return 0;
}

template <class Options, class Padding, class Numbers>
Options convolution(A a, const Numbers& numbers) {
  return {.stride = numbers(a, "stride", 1),
          .padding = padding_of<Padding>(a, numbers),
          .dilation = numbers(a, "dilation", 1),
          .groups = a.integer("groups", 1)};
}
template <class Options, class Numbers>
Options transposed(A a, const Numbers& numbers) {
  return {.stride = numbers(a, "stride", 1),
          .padding = numbers(a, "padding", 0),
          .output_padding = numbers(a, "output_padding", 0),
          .dilation = numbers(a, "dilation", 1),
          .groups = a.integer("groups", 1)};
}

Results conv_1d(A a) {
  const auto widths = [](A given, const char* name, std::int64_t otherwise) {
    return Size2(0, length(given, name, otherwise));
  };
  return {conv1d(x(a), a.tensor("weight"), a.tensor_or_none("bias"),
                 {.stride = length(a, "stride", 1),
                  .padding = padding_of<ConvPadding>(a, widths),
                  .dilation = length(a, "dilation", 1),
                  .groups = a.integer("groups", 1)})};
}
Results conv_2d(A a) {
  return {conv2d(x(a), a.tensor("weight"), a.tensor_or_none("bias"),
                 convolution<Conv2dOptions, ConvPadding>(a, extent))};
}
Results conv_3d(A a) {
  return {conv3d(x(a), a.tensor("weight"), a.tensor_or_none("bias"),
                 convolution<Conv3dOptions, ConvPadding3>(a, volume))};
}
Results transposed_1d(A a) {
  return {conv_transpose1d(x(a), a.tensor("weight"), a.tensor_or_none("bias"),
                           transposed<ConvTranspose1dOptions>(a, length))};
}
Results transposed_2d(A a) {
  return {conv_transpose2d(x(a), a.tensor("weight"), a.tensor_or_none("bias"),
                           transposed<ConvTranspose2dOptions>(a, extent))};
}
Results transposed_3d(A a) {
  return {conv_transpose3d(x(a), a.tensor("weight"), a.tensor_or_none("bias"),
                           transposed<ConvTranspose3dOptions>(a, volume))};
}

/// The size that an axis, counted from the end, is resized to.
std::int64_t new_size(A a, int axis, bool by_sizes_alone) {
  const int axes = x(a).rank() - 2;
  if (a.has("size")) {
    const auto sizes = a.list("size");
    return sizes.size() == 1 ? sizes[0] : sizes[static_cast<std::size_t>(axes + axis)];
  }
  const double made = a.number("scale_factor") * static_cast<double>(x(a).size(axis));
  const auto size = static_cast<std::int64_t>(made);
  // A factor that gives whole sizes is the same as these.
  if (static_cast<double>(size) != made && !by_sizes_alone)
    throw Refused("argument 'scale_factor' gives no whole sizes");
  return size;
}

Results resized(A a, Upsampling how, bool corners) {
  const UpsampleOptions options{.align_corners = corners};
  const bool by_sizes_alone = corners || a.flag("recompute_scale_factor", false);
  const auto size = [&](int axis) { return new_size(a, axis, by_sizes_alone); };
  switch (x(a).rank()) {
    case 3:
      return {upsample1d(x(a), size(-1), how, options)};
    case 4:
      return {upsample2d(x(a), {size(-2), size(-1)}, how, options)};
    default:
      return {upsample3d(x(a), {size(-3), size(-2), size(-1)}, how, options)};
  }
}
template <Upsampling how>
Results interpolated(A a) {
  return resized(a, how, a.flag("align_corners", false));
}

WindowOptions windows(A a) {
  return {.dilation = extent(a, "dilation", 1),
          .padding = extent(a, "padding", 0),
          .stride = extent(a, "stride", 1)};
}
Results unfolded(A a) { return {unfold(x(a), extent(a, "kernel_size", 1), windows(a))}; }
Results folded(A a) {
  return {fold(x(a), extent(a, "output_size", 1), extent(a, "kernel_size", 1), windows(a))};
}
Results unfolded_axis(A a) {
  return {unfold_axis(x(a), a.integer("dimension"), a.integer("size"), a.integer("step"))};
}

constexpr const char* kConv = "input weight bias stride padding dilation groups";
constexpr const char* kTransposed =
    "input weight bias stride padding output_padding groups dilation";
constexpr const char* kInterpolate =
    "input size scale_factor mode? align_corners recompute_scale_factor antialias!";

}  // namespace

std::vector<Entry> image_entries() {
  return {
      {"nn.functional.conv1d", kConv, Sums::yes, conv_1d},
      {"nn.functional.conv2d", kConv, Sums::yes, conv_2d},
      {"nn.functional.conv3d", kConv, Sums::yes, conv_3d},
      {"nn.functional.conv_transpose1d", kTransposed, Sums::yes, transposed_1d},
      {"nn.functional.conv_transpose2d", kTransposed, Sums::yes, transposed_2d},
      {"nn.functional.conv_transpose3d", kTransposed, Sums::yes, transposed_3d},
      {"nn.functional.interpolate/nearest", kInterpolate, Sums::yes,
       interpolated<Upsampling::nearest>},
      {"nn.functional.interpolate/nearest-exact", kInterpolate, Sums::yes,
       interpolated<Upsampling::nearest_exact>},
      {"nn.functional.interpolate/linear", kInterpolate, Sums::yes,
       interpolated<Upsampling::linear>},
      {"nn.functional.interpolate/bilinear", kInterpolate, Sums::yes,
       interpolated<Upsampling::bilinear>},
      {"nn.functional.interpolate/trilinear", kInterpolate, Sums::yes,
       interpolated<Upsampling::trilinear>},
      {"nn.functional.interpolate/bicubic", kInterpolate, Sums::yes,
       interpolated<Upsampling::bicubic>},
      {"nn.functional.upsample_nearest", "input size scale_factor", Sums::yes,
       [](A a) { return resized(a, Upsampling::nearest, false); }},
      {"nn.functional.upsample_bilinear", "input size scale_factor", Sums::yes,
       [](A a) { return resized(a, Upsampling::bilinear, true); }},
      {"nn.functional.unfold", "input kernel_size dilation padding stride", Sums::yes, unfolded},
      {"composed.fold", "input output_size kernel_size dilation padding stride", Sums::yes, folded},
      {"unfold", "input dimension size step", Sums::yes, unfolded_axis},
      {"unfold_copy", "input dimension size step", Sums::yes, unfolded_axis},
  };
}

}  // namespace firn::interop
