// Pooling modules: each calls its op.
#include "firn/nn/layers/pool.h"

#include "base/checked.h"
#include "nn/layers/sizes.h"

namespace firn::nn {
namespace {

/// The window and the options that differ from the defaults.
template <class Size, class Options>
std::string describe_windows(Size window, const Options& o) {
  const Options plain;
  std::string s = text(window);
  if (!(o.stride == plain.stride)) s += ", stride = " + text(o.stride);
  if (!(o.padding == plain.padding)) s += ", padding = " + text(o.padding);
  if (!(o.dilation == plain.dilation)) s += ", dilation = " + text(o.dilation);
  if (o.ceil_mode) s += ", ceil_mode = true";
  if (!o.count_padding) s += ", count_padding = false";
  return s;
}
/// Describes windows along one axis: the height is ignored.
std::string describe_windows(std::int64_t window, Pool2dOptions o) {
  o.stride.h = o.stride.w;
  o.padding.h = o.padding.w;
  o.dilation.h = o.dilation.w;
  return describe_windows(Size2(window), o);
}

}  // namespace

FIRN_DEFINE_MEMBERS(MaxPool2d)
FIRN_DEFINE_MEMBERS(AvgPool2d)
FIRN_DEFINE_MEMBERS(MaxPool1d)
FIRN_DEFINE_MEMBERS(AvgPool1d)
FIRN_DEFINE_MEMBERS(AdaptiveMaxPool2d)
FIRN_DEFINE_MEMBERS(AdaptiveAvgPool2d)
FIRN_DEFINE_MEMBERS(GlobalAvgPool2d)
FIRN_DEFINE_MEMBERS(AdaptiveMaxPool1d)
FIRN_DEFINE_MEMBERS(AdaptiveAvgPool1d)
FIRN_DEFINE_MEMBERS(MaxPool3d)
FIRN_DEFINE_MEMBERS(AvgPool3d)
FIRN_DEFINE_MEMBERS(AdaptiveMaxPool3d)
FIRN_DEFINE_MEMBERS(AdaptiveAvgPool3d)
FIRN_DEFINE_MEMBERS(LPPool2d)
FIRN_DEFINE_MEMBERS(LPPool1d)
FIRN_DEFINE_MEMBERS(Upsample)
FIRN_DEFINE_MEMBERS(Upsample1d)
FIRN_DEFINE_MEMBERS(Upsample3d)

MaxPool2d::MaxPool2d(Size2 window, const Pool2dOptions& options)
    : window_(window), options_(options) {
  check_positive("MaxPool2d", "window", window);
}
Tensor MaxPool2d::forward(const Tensor& x) { return max_pool2d(x, window_, options_); }
std::string MaxPool2d::extra_repr() const { return describe_windows(window_, options_); }

AvgPool2d::AvgPool2d(Size2 window, const Pool2dOptions& options)
    : window_(window), options_(options) {
  check_positive("AvgPool2d", "window", window);
}
Tensor AvgPool2d::forward(const Tensor& x) { return avg_pool2d(x, window_, options_); }
std::string AvgPool2d::extra_repr() const { return describe_windows(window_, options_); }

MaxPool1d::MaxPool1d(std::int64_t window, const Pool2dOptions& options)
    : window_(window), options_(options) {
  check_positive("MaxPool1d", "window", Size2{1, window});
}
Tensor MaxPool1d::forward(const Tensor& x) { return max_pool1d(x, window_, options_); }
std::string MaxPool1d::extra_repr() const { return describe_windows(window_, options_); }

AvgPool1d::AvgPool1d(std::int64_t window, const Pool2dOptions& options)
    : window_(window), options_(options) {
  check_positive("AvgPool1d", "window", Size2{1, window});
}
Tensor AvgPool1d::forward(const Tensor& x) { return avg_pool1d(x, window_, options_); }
std::string AvgPool1d::extra_repr() const { return describe_windows(window_, options_); }

AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2 out) : out_(out) {
  check_positive("AdaptiveMaxPool2d", "out", out);
}
Tensor AdaptiveMaxPool2d::forward(const Tensor& x) { return adaptive_max_pool2d(x, out_); }
std::string AdaptiveMaxPool2d::extra_repr() const { return text(out_); }

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2 out) : out_(out) {
  check_positive("AdaptiveAvgPool2d", "out", out);
}
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) { return adaptive_avg_pool2d(x, out_); }
std::string AdaptiveAvgPool2d::extra_repr() const { return text(out_); }

AdaptiveMaxPool1d::AdaptiveMaxPool1d(std::int64_t out) : out_(out) {
  check_positive("AdaptiveMaxPool1d", "out", Size2{1, out});
}
Tensor AdaptiveMaxPool1d::forward(const Tensor& x) { return adaptive_max_pool1d(x, out_); }
std::string AdaptiveMaxPool1d::extra_repr() const { return fmt::format("{}", out_); }

AdaptiveAvgPool1d::AdaptiveAvgPool1d(std::int64_t out) : out_(out) {
  check_positive("AdaptiveAvgPool1d", "out", Size2{1, out});
}
Tensor AdaptiveAvgPool1d::forward(const Tensor& x) { return adaptive_avg_pool1d(x, out_); }
std::string AdaptiveAvgPool1d::extra_repr() const { return fmt::format("{}", out_); }

MaxPool3d::MaxPool3d(Size3 window, const Pool3dOptions& options)
    : window_(window), options_(options) {
  check_positive("MaxPool3d", "window", window);
}
Tensor MaxPool3d::forward(const Tensor& x) { return max_pool3d(x, window_, options_); }
std::string MaxPool3d::extra_repr() const { return describe_windows(window_, options_); }

AvgPool3d::AvgPool3d(Size3 window, const Pool3dOptions& options)
    : window_(window), options_(options) {
  check_positive("AvgPool3d", "window", window);
}
Tensor AvgPool3d::forward(const Tensor& x) { return avg_pool3d(x, window_, options_); }
std::string AvgPool3d::extra_repr() const { return describe_windows(window_, options_); }

AdaptiveMaxPool3d::AdaptiveMaxPool3d(Size3 out) : out_(out) {
  check_positive("AdaptiveMaxPool3d", "out", out);
}
Tensor AdaptiveMaxPool3d::forward(const Tensor& x) { return adaptive_max_pool3d(x, out_); }
std::string AdaptiveMaxPool3d::extra_repr() const { return text(out_); }

AdaptiveAvgPool3d::AdaptiveAvgPool3d(Size3 out) : out_(out) {
  check_positive("AdaptiveAvgPool3d", "out", out);
}
Tensor AdaptiveAvgPool3d::forward(const Tensor& x) { return adaptive_avg_pool3d(x, out_); }
std::string AdaptiveAvgPool3d::extra_repr() const { return text(out_); }

LPPool2d::LPPool2d(double p, Size2 window, const Pool2dOptions& options)
    : p_(p), window_(window), options_(options) {
  check_positive("LPPool2d", "window", window);
}
Tensor LPPool2d::forward(const Tensor& x) { return lp_pool2d(x, p_, window_, options_); }
std::string LPPool2d::extra_repr() const {
  return fmt::format("{}, {}", p_, describe_windows(window_, options_));
}

LPPool1d::LPPool1d(double p, std::int64_t window, const Pool2dOptions& options)
    : p_(p), window_(window), options_(options) {
  check_positive("LPPool1d", "window", Size2{1, window});
}
Tensor LPPool1d::forward(const Tensor& x) { return lp_pool1d(x, p_, window_, options_); }
std::string LPPool1d::extra_repr() const {
  return fmt::format("{}, {}", p_, describe_windows(window_, options_));
}

Tensor GlobalAvgPool2d::forward(const Tensor& x) { return global_avg_pool2d(x); }

namespace {

/// Size `axis` of x, from the end, times `scale`.
std::int64_t scaled(const char* layer, const Tensor& x, int axis, std::int64_t scale) {
  FIRN_CHECK(x.defined() && x.rank() >= -axis, layer, "reshape it", "{} has too few axes",
             describe(x));
  return checked_product(layer, x.size(axis), scale);
}

/// `linear` is PyTorch's name of linear resizing for this number of axes.
std::string describe_upsampling(Upsampling how, const UpsampleOptions& o, const char* linear) {
  std::string s;
  if (how != Upsampling::nearest)
    s = fmt::format(", {}", how == Upsampling::linear ? linear : to_string(how));
  if (o.align_corners) s += ", align_corners = true";
  return s;
}

}  // namespace

Upsample::Upsample(Size2 scale, Upsampling how, const UpsampleOptions& options)
    : scale_(scale), how_(how), options_(options) {
  check_positive("Upsample", "scale", scale);
}
Tensor Upsample::forward(const Tensor& x) {
  return upsample2d(x, {scaled("Upsample", x, -2, scale_.h), scaled("Upsample", x, -1, scale_.w)},
                    how_, options_);
}
std::string Upsample::extra_repr() const {
  return text(scale_) + describe_upsampling(how_, options_, "bilinear");
}

Upsample1d::Upsample1d(std::int64_t scale, Upsampling how, const UpsampleOptions& options)
    : scale_(scale), how_(how), options_(options) {
  check_positive("Upsample1d", "scale", Size2{1, scale});
}
Tensor Upsample1d::forward(const Tensor& x) {
  return upsample1d(x, scaled("Upsample1d", x, -1, scale_), how_, options_);
}
std::string Upsample1d::extra_repr() const {
  return fmt::format("{}", scale_) + describe_upsampling(how_, options_, "linear");
}

Upsample3d::Upsample3d(Size3 scale, Upsampling how, const UpsampleOptions& options)
    : scale_(scale), how_(how), options_(options) {
  check_positive("Upsample3d", "scale", scale);
}
Tensor Upsample3d::forward(const Tensor& x) {
  return upsample3d(x,
                    {scaled("Upsample3d", x, -3, scale_.d), scaled("Upsample3d", x, -2, scale_.h),
                     scaled("Upsample3d", x, -1, scale_.w)},
                    how_, options_);
}
std::string Upsample3d::extra_repr() const {
  return text(scale_) + describe_upsampling(how_, options_, "trilinear");
}

}  // namespace firn::nn
