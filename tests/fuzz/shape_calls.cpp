// Creation, views, joins, and the lists of sizes themselves.
#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

/// A shape for creation: small, or with hostile sizes.
Shape any_shape(Draw& d) { return d.numbers("shape", static_cast<int>(d.below(5)), 0, 5); }

Results created(Draw& d) {
  const Shape shape = any_shape(d);
  const DType dtype = d.dtype("dtype");
  switch (d.below(7)) {
    case 0:
      d.say(" full");
      return {full(shape, d.real("v"), dtype)};
    case 1:
      d.say(" zeros");
      return {zeros(shape, dtype)};
    case 2:
      d.say(" empty channels_last");
      empty(shape, dtype, Device::cpu(), MemoryFormat::channels_last);
      return {};
    case 3:
      d.say(" tensor");
      return {tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, shape)};
    case 4: {
      d.say(" rand");
      const double low = d.real("low");
      return {rand(shape, {.low = low, .high = d.real("high"), .dtype = dtype})};
    }
    case 5: {
      d.say(" randn");
      const double mean = d.real("mean");
      return {randn(shape, {.mean = mean, .stddev = d.real("stddev"), .dtype = dtype})};
    }
    default:
      d.say(" ones, like");
      const Tensor t = ones(shape, dtype);
      return {t, ones_like(t), zeros_like(t)};
  }
}

Results counted(Draw& d) {
  const std::int64_t n = d.number("n", 0, 20);
  switch (d.below(3)) {
    case 0:
      d.say(" eye");
      return {eye(n, d.dtype("dtype"))};
    case 1:
      d.say(" randperm");
      return {randperm(n)};
    default:
      d.say(" arange");
      const double start = d.real("start"), step = d.real("step");
      return {arange(n, {.start = start, .step = step, .dtype = d.dtype("dtype")})};
  }
}

Results reshaped(Draw& d) {
  const Tensor x = d.any();
  Shape shape = d.list(static_cast<int>(d.below(5)), -1, 5);
  if (d.chance(60)) {  // sizes that multiply to x's, and an axis left out
    shape = x.shape();
    if (shape.size() > 1 && d.chance(60)) {
      const std::int64_t both = shape[0] * shape[1];
      shape.erase(0);
      shape[0] = both;
    }
    if (!shape.empty() && d.chance(40)) shape[d.below(shape.size())] = -1;
    if (shape.size() < kMaxRank && d.chance(40)) shape.insert(d.below(shape.size() + 1), 1);
  }
  d.say(" to " + to_string(shape));
  return {reshape(x, shape)};
}

Results expanded(Draw& d) {
  const Tensor x = d.small();
  Shape shape = x.shape();
  for (auto& n : shape)
    if (n == 1 || d.chance(10)) n = d.integer(-1, 4);
  while (shape.size() < kMaxRank && d.chance(30)) shape.insert(0, d.integer(0, 4));
  d.say(" to " + to_string(shape));
  return {expand(x, shape)};
}

Results strided(Draw& d) {
  const Tensor x = d.small();
  const int rank = static_cast<int>(d.below(5));
  const Shape shape = d.numbers("shape", rank, 0, 4);
  const Strides strides = d.numbers("strides", d.chance(97) ? rank : rank + 1, 0, 4);
  return {x.as_strided(shape, strides, d.number("offset", 0, 4))};
}

/// Views of views, each with hostile arguments.
Results viewed(Draw& d) {
  Tensor x = d.any();
  const auto steps = 1 + d.below(4);
  for (std::int64_t i = 0; i < steps; ++i) {
    switch (d.below(9)) {
      case 0: {
        d.say(" slice");
        const std::int64_t axis = d.axis(x), start = d.number("start", -5, 5),
                           stop = d.number("stop", -5, 9);
        x = slice(x, axis, start, stop, d.number("step", 1, 3));
        break;
      }
      case 1: {
        d.say(" select");
        const std::int64_t axis = d.axis(x);
        x = select(x, axis, d.number("index", -1, 1));
        break;
      }
      case 2: {
        d.say(" flatten");
        const std::int64_t from = d.number("from", 0, 1);
        x = flatten(x, from, d.number("to", -1, x.rank()));
        break;
      }
      case 3: {
        d.say(" transpose");
        const std::int64_t a = d.axis(x);
        x = transpose(x, a, d.axis(x));
        break;
      }
      case 4:
        d.say(" unsqueeze");
        x = unsqueeze(x, d.number("axis", -x.rank() - 1, x.rank()));
        break;
      case 5:
        d.say(" squeeze");
        x = squeeze(x, d.axis(x));
        break;
      case 6: {
        d.say(" permute");
        Axes order;
        for (int k = 0; k < x.rank(); ++k) order.insert(d.below(order.size() + 1), k);
        if (d.chance(10)) order = d.list(x.rank(), -x.rank(), x.rank());
        d.say(to_string(order));
        x = permute(x, order);
        break;
      }
      case 7:
        d.say(" [ ]");
        x = x[d.number("index", -1, 1)];
        break;
      default:
        d.say(" size");
        x.size(d.number("axis", -x.rank(), x.rank()));
        if (is_small(x) && d.chance(50)) x = d.chance(50) ? contiguous(x) : clone(x);
    }
  }
  return {x};
}

Results cut(Draw& d) {
  const bool by_size = d.chance(60);
  const Tensor x = by_size ? d.small() : d.any();  // else there are millions of pieces
  const std::int64_t axis = d.axis(x);
  if (by_size) return split(x, d.number("size", 1, 4), axis);
  std::vector<std::int64_t> sizes;
  d.say(" sizes");
  const auto count = d.below(4);
  for (std::int64_t i = 0; i < count; ++i) sizes.push_back(d.number("", 0, 3));
  if (d.chance(50) && x.rank() > 0) {
    const std::int64_t n = x.shape()[0];
    sizes = {n / 2, n - n / 2};
    return split(x, sizes, 0);
  }
  return split(x, sizes, axis);
}

Results joined(Draw& d) {
  std::vector<Tensor> parts{d.any()};
  const bool stacks = d.flag("stack");
  const auto more = d.below(4);
  for (std::int64_t i = 0; i < more; ++i) {
    Shape shape = is_small(parts[0]) ? parts[0].shape() : Shape{1};
    if (!stacks && !shape.empty() && d.chance(30)) shape[0] = d.below(4);
    parts.push_back(d.chance(10) ? parts[0] : d.of(shape, parts[0].dtype()));
  }
  if (d.chance(2)) parts.clear();
  const std::int64_t axis = d.number("axis", 0, d.chance(80) ? 0 : 2);
  return {stacks ? stack(parts, axis) : cat(parts, axis)};
}

Results padded(Draw& d) {
  const Tensor x = d.any();
  const Axes before = d.numbers("before", x.rank(), 0, 2);
  const Axes after = d.numbers("after", x.rank(), 0, 2);
  return {pad(x, before, after, d.real("v"))};
}

/// The lists that shapes are.
Results listed(Draw& d) {
  Dims s = d.numbers("list", static_cast<int>(d.below(9)), -2, 5);
  switch (d.below(7)) {
    case 0:
      s[d.number("at", -8, 7)] = 1;
      break;
    case 1: {
      const std::int64_t at = d.number("insert", 0, s.size());
      s.insert(at, 3);
      break;
    }
    case 2:
      s.erase(d.number("erase", -s.size(), s.size()));
      break;
    case 3:
      s.pop_back();
      break;
    case 4:
      s.back() = 2;
      break;
    case 5:
      s.product();
      contiguous_strides(s);
      break;
    default: {
      const Dims other = d.numbers("with", static_cast<int>(d.below(9)), 1, 2);
      broadcast_shapes("list", s, other);
    }
  }
  to_string(s);
  return {};
}

Results copied(Draw& d) {
  Tensor x = d.any();
  switch (d.below(6)) {
    case 0:
      return {cast(x, d.dtype("to"))};
    case 1:
      d.say(" channels_last");
      return {channels_last(x)};
    case 2:
      d.say(" to_vector");
      if (!is_small(x)) return {};  // AddressSanitizer's operator new does not throw
      x.to_vector<std::int32_t>();
      x.to_vector<std::uint8_t>();
      return {};
    case 3:
      d.say(" item");
      x.item();
      return {};
    case 4:
      d.say(" contiguous");
      return {contiguous(x)};
    default:
      d.say(" clone");
      return {clone(x)};
  }
}

Results overwritten(Draw& d) {
  const Tensor x = d.small().detach();
  switch (d.below(5)) {
    case 0:
      d.say(" fill_");
      fill_(x, d.real("v"));
      break;
    case 1:
      d.say(" zero_");
      zero_(x);
      break;
    case 2: {
      d.say(" copy_");
      copy_(x, d.chance(70) ? d.of(x.shape(), d.dtype("from")).detach() : d.any().detach());
      break;
    }
    case 3: {
      d.say(" uniform_");
      const double low = d.real("low");
      uniform_(x, low, d.real("high"));
      break;
    }
    default: {
      d.say(" normal_");
      const double mean = d.real("mean");
      normal_(x, mean, d.real("stddev"));
    }
  }
  return {x};
}

}  // namespace

std::vector<Call> shape_calls() {
  return {{"creation", created},   {"creation", created},     {"count", counted},
          {"count", counted},      {"reshape", reshaped},     {"reshape", reshaped},
          {"expand", expanded},    {"expand", expanded},      {"as_strided", strided},
          {"as_strided", strided}, {"views", viewed},         {"views", viewed},
          {"views", viewed},       {"views", viewed},         {"split", cut},
          {"split", cut},          {"join", joined},          {"join", joined},
          {"pad", padded},         {"pad", padded},           {"list", listed},
          {"list", listed},        {"copy", copied},          {"copy", copied},
          {"copy", copied},        {"in place", overwritten}, {"in place", overwritten}};
}

}  // namespace fuzz
