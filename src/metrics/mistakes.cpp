#include "firn/metrics/mistakes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/dist/group.h"
#include "firn/io/record.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/ops/sort.h"
#include "metrics/batch.h"
#include "metrics/classes.h"

namespace firn::metrics {
namespace {

constexpr const char* kName = "Mistakes";
constexpr std::int64_t kLargestSide = 48;

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[word >> (18 - 6 * k) & 63];
  }
  return out;
}

void append(std::string& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 255);
}

/// Returns a BMP file of 24 bits a pixel, with rows from the bottom up, padded to 4 bytes
/// (BITMAPINFOHEADER).
std::string bmp(const Mistake& m) {
  constexpr std::uint32_t kHead = 14 + 40;
  const auto row = static_cast<std::uint32_t>((3 * m.width + 3) / 4 * 4);
  const std::uint32_t size = row * static_cast<std::uint32_t>(m.height);
  std::string out = "BM";
  append(out, kHead + size, 4);
  append(out, 0, 4);
  append(out, kHead, 4);
  append(out, 40, 4);
  append(out, static_cast<std::uint32_t>(m.width), 4);
  append(out, static_cast<std::uint32_t>(m.height), 4);
  append(out, 1, 2);
  append(out, 24, 2);
  append(out, 0, 4);
  append(out, size, 4);
  for (int i = 0; i < 4; ++i) append(out, 0, 4);
  for (std::int64_t y = m.height; y-- > 0;) {
    const std::size_t begin = out.size();
    for (std::int64_t x = 0; x < m.width; ++x)
      for (std::int64_t c = 3; c-- > 0;)  // blue, green, red
        out += static_cast<char>(m.pixels[static_cast<std::size_t>((y * m.width + x) * m.channels +
                                                                   (m.channels == 3 ? c : 0))]);
    out.resize(begin + row, '\0');
  }
  return out;
}

Tensor rows_of(const Tensor& t, const Tensor& which) { return index_select(t, 0, which); }

}  // namespace

Mistakes::Mistakes(const Options& options) try : options_(options) {
  FIRN_CHECK(options.keep >= 1 && options.keep <= 64, kName, "a page shows a few",
             "keep = {} is not in [1, 64]", options.keep);
  FIRN_CHECK(
      (options.height > 0 && options.width > 0) || (options.height == 0 && options.width == 0),
      kName, "give both, or none", "height = {}, width = {}", options.height, options.width);
  for (const auto& limit : {options.black, options.white})
    FIRN_CHECK(!limit || std::isfinite(*limit), kName, "give a value that pixels can have",
               "black or white is {}", *limit);
  FIRN_CHECK(!options.black || !options.white || *options.black != *options.white, kName,
             "give two different values", "black = white = {}", *options.black);
}
FIRN_OUT_OF_MEMORY(kName)

void Mistakes::update(const Tensor&, const Tensor&) {
  throw Error(kName, "it shows what the model was given",
              "call update_from(input, output, target), as fit() does");
}

Tensor Mistakes::pictures_of(const Tensor& input) const {
  const std::int64_t n = input.size(0);
  Tensor x = input.detach();
  if (options_.height > 0) {
    const std::int64_t pixels = options_.height * options_.width;
    const std::int64_t elements = n > 0 ? x.numel() / n : pixels;
    FIRN_CHECK(elements == pixels || elements == 3 * pixels, kName,
               "height x width x channels is the size of a sample, with 1 or 3 channels",
               "{} with height {} and width {}", describe(input), options_.height, options_.width);
    FIRN_CHECK(x.rank() == 2 || (x.size(-2) == options_.height && x.size(-1) == options_.width),
               kName, "leave height and width out, or flatten the input",
               "{} with height {} and width {}", describe(input), options_.height, options_.width);
    x = reshape(x, {n, elements / pixels, options_.height, options_.width});
  } else {
    FIRN_CHECK(x.rank() == 3 || x.rank() == 4, kName,
               "give height and width, or inputs [n, channels, height, width]",
               "{} does not say how large a picture is", describe(input));
    if (x.rank() == 3) x = unsqueeze(x, 1);
  }
  FIRN_CHECK(n == 0 || (x.size(2) > 0 && x.size(3) > 0), kName, "pictures have pixels", "{}",
             describe(input));
  FIRN_CHECK(x.size(1) == 1 || x.size(1) == 3, kName, "pictures have 1 or 3 channels", "{}",
             describe(input));
  for (const int axis : {2, 3}) {
    const std::int64_t step = (x.size(axis) + kLargestSide - 1) / kLargestSide;
    if (step > 1) x = slice(x, axis, 0, x.size(axis), step);
  }
  return x;
}

Mistakes::Kept Mistakes::best_of(const Kept& all) const {
  const std::int64_t k = std::min(options_.keep, all.scores.size(0));
  const Sorted best = topk(all.scores, k);
  return {best.values, rows_of(all.classes, best.indices), rows_of(all.pictures, best.indices)};
}

void Mistakes::update_from(const Tensor& input, const Tensor& output, const Tensor& target) try {
  require_batch(kName, output, target, own_->scores);
  require_batch(kName, input, target, own_->scores);
  FIRN_CHECK(output.rank() == 2 && target.rank() == 1, kName,
             "outputs are [n, classes], targets [n]", "got {} and {}", describe(output),
             describe(target));
  FIRN_CHECK(input.rank() >= 2 && input.size(0) == target.size(0), kName,
             "inputs have the samples on axis 0", "inputs {} for targets {}", describe(input),
             describe(target));
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  class_axis(kName, output, target, 1, 0);
  const Tensor t = class_numbers(kName, target.detach(), output.size(1), options_.ignore_index);
  const Tensor pictures = pictures_of(input);
  const Tensor p = softmax(cast(output.detach(), f32), 1);
  const Tensor chosen = argmax(p, 1), largest = max(p, 1);
  // The comparison is false for NaN, which gets the score -1.
  const Tensor wrong = where(lt(t, 0.0), 0.0, cast(ne(chosen, t), f32));
  const Tensor scores = where(ge(largest * wrong, 1e-30), largest, -1.0);
  const Sorted best = topk(scores, std::min(options_.keep, scores.size(0)));
  Kept now{best.values, rows_of(stack({t, chosen}, 1), best.indices),
           cast(rows_of(pictures, best.indices), f32)};
  const Kept& before = *own_.operator->();
  if (before.scores.defined()) {
    FIRN_CHECK(before.pictures[0].shape() == now.pictures[0].shape(), kName,
               "the pictures of all batches have one size", "pictures {} after {}",
               now.pictures[0].shape(), before.pictures[0].shape());
    now = best_of({cat({before.scores, now.scores}), cat({before.classes, now.classes}),
                   cat({before.pictures, now.pictures})});
  }
  own_.change() = now;
  all_.change() = {};
}
FIRN_OUT_OF_MEMORY(kName)

void Mistakes::reset() {
  own_.change() = {};
  all_.change() = {};
}

void Mistakes::combine(const dist::Group& group) try {
  const NoGrad no_grad;
  const NoAutocast no_autocast;
  const Device device = group.device();
  const Kept& own = *own_.operator->();
  const bool some = own.scores.defined() && own.scores.size(0) > 0;
  // A rank without samples gets the size of the pictures from the other ranks.
  const Tensor mine = tensor(
      {some ? own.pictures.size(1) : std::int64_t{0}, some ? own.pictures.size(2) : std::int64_t{0},
       some ? own.pictures.size(3) : std::int64_t{0}, options_.keep},
      device);
  const Tensor sizes = empty({group.size(), 4}, i64, device);
  group.all_gather(mine, sizes);
  const auto of_rank = sizes.to_vector<std::int64_t>();
  std::array<std::int64_t, 3> size{0, 0, 0};
  for (std::size_t r = 0; r < of_rank.size(); r += 4) {
    FIRN_CHECK(of_rank[r + 3] == options_.keep, kName, "give all ranks' metrics the same options",
               "rank {} keeps {}, and this one {}", r / 4, of_rank[r + 3], options_.keep);
    if (of_rank[r] == 0) continue;
    const std::array<std::int64_t, 3> its{of_rank[r], of_rank[r + 1], of_rank[r + 2]};
    FIRN_CHECK(size[0] == 0 || size == its, kName, "the pictures of all ranks have one size",
               "ranks have pictures {} and {}", Shape{size[0], size[1], size[2]},
               Shape{its[0], its[1], its[2]});
    size = its;
  }
  if (size[0] == 0) {
    all_.change() = {};
    return;
  }
  const std::int64_t keep = options_.keep, ranks = group.size();
  Kept padded{full({keep}, -1.0, f32, device), zeros({keep, 2}, i64, device),
              zeros({keep, size[0], size[1], size[2]}, f32, device)};
  if (some) {
    const std::int64_t n = own.scores.size(0);
    copy_(slice(padded.scores, 0, 0, n), own.scores);
    copy_(slice(padded.classes, 0, 0, n), own.classes);
    copy_(slice(padded.pictures, 0, 0, n), own.pictures);
  }
  const Kept gathered{empty({ranks * keep}, f32, device), empty({ranks * keep, 2}, i64, device),
                      empty({ranks * keep, size[0], size[1], size[2]}, f32, device)};
  group.all_gather(padded.scores, gathered.scores);
  group.all_gather(padded.classes, gathered.classes);
  group.all_gather(padded.pictures, gathered.pictures);
  all_.change() = best_of(gathered);
}
FIRN_OUT_OF_MEMORY(kName)

std::vector<Mistake> Mistakes::list() const try {
  const Kept& kept = all_->scores.defined() ? *all_.operator->() : *own_.operator->();
  std::vector<Mistake> out;
  if (!kept.scores.defined() || kept.scores.size(0) == 0) return out;
  const NoGrad no_grad;
  const auto scores = kept.scores.to_vector<double>();
  const auto classes = kept.classes.to_vector<std::int64_t>();
  const auto values = permute(kept.pictures, {0, 2, 3, 1}).to_vector<double>();
  const std::size_t size = values.size() / scores.size();
  for (std::size_t i = 0; i < scores.size() && scores[i] >= 0; ++i) {
    Mistake m{classes[2 * i],        classes[2 * i + 1],    scores[i], kept.pictures.size(2),
              kept.pictures.size(3), kept.pictures.size(1), {}};
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * size);
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    double low = std::numeric_limits<double>::infinity(), high = -low;  // range of finite values
    for (auto v = begin; v != end; ++v)
      if (std::isfinite(*v)) {
        low = std::min(low, *v);
        high = std::max(high, *v);
      }
    const double black = options_.black.value_or(low), white = options_.white.value_or(high);
    for (auto v = begin; v != end; ++v) {
      const double share = white != black ? (*v - black) / (white - black) : 0;
      // A pixel that is NaN is black.
      m.pixels.push_back(static_cast<std::uint8_t>(share >= 1  ? 255
                                                   : share > 0 ? std::lround(255 * share)
                                                               : 0));
    }
    out.push_back(std::move(m));
  }
  return out;
}
FIRN_OUT_OF_MEMORY(kName)

void Mistakes::add_details(io::Record& details) const {
  std::vector<io::Record> records;
  for (const Mistake& m : list())
    records.push_back(io::Record()
                          .add("true", m.target)
                          .add("predicted", m.predicted)
                          .add("probability", m.probability)
                          .add("image", "data:image/bmp;base64," + base64(bmp(m))));
  details.add("mistakes", std::span<const io::Record>(records));
}

}  // namespace firn::metrics
