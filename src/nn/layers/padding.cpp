// Padding, PixelShuffle, PixelUnshuffle, ChannelShuffle, Unfold, Fold.
#include "firn/nn/layers/padding.h"

#include "base/check.h"
#include "firn/ops/shape.h"
#include "nn/layers/sizes.h"

namespace firn::nn {

Padding::Padding(const char* what, const Axes& before, const Axes& after, PadMode mode,
                 double value)
    : what_(what), before_(before), after_(after), mode_(mode), value_(value) {
  FIRN_CHECK(before.size() == after.size() && !before.empty(), what,
             "give one size for each of the last axes: {1, 1} for images", "before {} and after {}",
             before, after);
  for (int i = 0; i < before.size(); ++i)
    FIRN_CHECK(before[i] >= 0 && after[i] >= 0, what, "slice() takes elements away",
               "before {} and after {} have a negative size", before, after);
}

Tensor Padding::forward(const Tensor& x) {
  FIRN_CHECK(x.defined() && x.rank() >= before_.size(), what_, "give fewer sizes, or unsqueeze()",
             "{} sizes for {}", before_.size(), describe(x));
  Axes before = before_, after = after_;
  while (before.size() < x.rank()) {
    before.insert(0, 0);
    after.insert(0, 0);
  }
  return mode_ == PadMode::constant ? pad(x, before, after, value_) : pad(x, before, after, mode_);
}

std::string Padding::extra_repr() const {
  std::string text = to_string(before_);
  if (!(before_ == after_)) text += ", " + to_string(after_);
  if (value_ != 0) text += fmt::format(", value = {}", value_);
  return text;
}

namespace {

std::int64_t positive(const char* layer, const char* name, std::int64_t n) {
  FIRN_CHECK(n > 0, layer, "1 changes nothing", "{} = {} must be positive", name, n);
  return n;
}

}  // namespace

FIRN_DEFINE_MEMBERS(Padding)
FIRN_DEFINE_MEMBERS(ConstantPad)
FIRN_DEFINE_MEMBERS(ZeroPad)
FIRN_DEFINE_MEMBERS(ReflectionPad)
FIRN_DEFINE_MEMBERS(ReplicationPad)
FIRN_DEFINE_MEMBERS(CircularPad)
FIRN_DEFINE_MEMBERS(PixelShuffle)
FIRN_DEFINE_MEMBERS(PixelUnshuffle)
FIRN_DEFINE_MEMBERS(ChannelShuffle)
FIRN_DEFINE_MEMBERS(Unfold)
FIRN_DEFINE_MEMBERS(Fold)

PixelShuffle::PixelShuffle(std::int64_t r) : r_(positive("PixelShuffle", "r", r)) {}
Tensor PixelShuffle::forward(const Tensor& x) { return pixel_shuffle(x, r_); }
std::string PixelShuffle::extra_repr() const { return fmt::format("{}", r_); }

PixelUnshuffle::PixelUnshuffle(std::int64_t r) : r_(positive("PixelUnshuffle", "r", r)) {}
Tensor PixelUnshuffle::forward(const Tensor& x) { return pixel_unshuffle(x, r_); }
std::string PixelUnshuffle::extra_repr() const { return fmt::format("{}", r_); }

ChannelShuffle::ChannelShuffle(std::int64_t groups)
    : groups_(positive("ChannelShuffle", "groups", groups)) {}
Tensor ChannelShuffle::forward(const Tensor& x) { return channel_shuffle(x, groups_); }
std::string ChannelShuffle::extra_repr() const { return fmt::format("{}", groups_); }

namespace {

/// The options that differ from the defaults.
std::string unusual(const WindowOptions& o) {
  std::string s;
  if (!(o.dilation == Size2(1))) s += ", dilation = " + text(o.dilation);
  if (!(o.padding == Size2(0))) s += ", padding = " + text(o.padding);
  if (!(o.stride == Size2(1))) s += ", stride = " + text(o.stride);
  return s;
}

}  // namespace

Unfold::Unfold(Size2 window, const WindowOptions& options) : window_(window), options_(options) {
  check_positive("Unfold", "window", window);
}
Tensor Unfold::forward(const Tensor& x) { return unfold(x, window_, options_); }
std::string Unfold::extra_repr() const { return text(window_) + unusual(options_); }

Fold::Fold(Size2 out, Size2 window, const WindowOptions& options)
    : out_(out), window_(window), options_(options) {
  check_positive("Fold", "out", out);
  check_positive("Fold", "window", window);
}
Tensor Fold::forward(const Tensor& x) { return fold(x, out_, window_, options_); }
std::string Fold::extra_repr() const {
  return text(out_) + ", " + text(window_) + unusual(options_);
}

}  // namespace firn::nn
