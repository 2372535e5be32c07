// Indexing, products, rows and losses.
#include <algorithm>

#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

Results indexed(Draw& d) {
  const Tensor x = d.small();
  const std::int64_t n = x.rank() > 0 ? x.shape()[0] : 1;
  switch (d.below(4)) {
    case 0:
      d.say(" embedding");
      return {embedding(x, d.index(d.small_shape(0, 3), n))};
    case 1: {
      d.say(" index_select");
      const std::int64_t axis = d.chance(60) ? 0 : d.axis(x);
      return {index_select(x, axis, d.index({d.below(6)}, n))};
    }
    case 2: {
      d.say(" gather");
      Shape shape = x.shape();
      if (!shape.empty()) shape[0] = d.below(5);
      return {gather(x, d.chance(80) ? 0 : d.axis(x), d.index(shape, n))};
    }
    default: {
      d.say(" one_hot");
      const std::int64_t classes = d.number("classes", 1, 6);
      const Tensor index = d.index(d.small_shape(0, d.chance(90) ? 3 : 8), classes);
      return {one_hot(index, classes, d.dtype("dtype"))};
    }
  }
}

Results scanned(Draw& d) {
  const Tensor x = d.small();
  const std::int64_t axis = d.axis(x);
  switch (d.below(5)) {
    case 0:
      d.say(" cumsum");
      return {cumsum(x, axis)};
    case 1:
      d.say(" cumprod");
      return {cumprod(x, axis)};
    case 2:
      d.say(" logcumsumexp");
      return {logcumsumexp(x, axis)};
    case 3: {
      d.say(" cummax");
      const Sorted so_far = cummax(x, axis);
      return {so_far.values, so_far.indices};
    }
    default: {
      d.say(" cummin");
      const Sorted so_far = cummin(x, axis);
      return {so_far.values, so_far.indices};
    }
  }
}

Results statistics(Draw& d) {
  const Tensor x = d.small();
  switch (d.below(4)) {
    case 0: {
      d.say(" median");
      if (d.chance(40)) return {median(x)};
      const std::int64_t axis = d.axis(x);
      const Sorted middle = median(x, axis, d.flag("keepdims"));
      return {middle.values, middle.indices};
    }
    case 1: {
      d.say(" quantile");
      const Axes axes = d.axes(x);
      const auto how = static_cast<Interpolation>(d.below(5));
      const QuantileOptions options{
          .axes = axes, .keepdims = d.flag("keepdims"), .interpolation = how};
      if (d.chance(50)) return {quantile(x, d.real("q"), options)};
      return {quantile(x, sigmoid(d.of({d.below(4)}, f32)), options)};
    }
    case 2: {
      d.say(" histogram");
      const Tensor w = d.maybe(d.of(x.shape(), x.dtype()));
      const Histogram h =
          histogram(x, d.number("bins", 0, 6), {.weights = w, .density = d.flag("density")});
      return {h.hist, h.edges};
    }
    default: {
      d.say(" unique");
      const Unique u = unique(x);
      return {u.values, u.inverse, u.counts};
    }
  }
}

Results in_order(Draw& d) {
  if (d.chance(25)) {
    d.say(" bincount");
    const Tensor x = d.chance(80) ? d.index({d.below(40)}, 9) : d.small();
    const Tensor w = d.maybe(d.of(x.shape(), d.chance(80) ? f32 : d.dtype("weights")));
    return {bincount(x, {.weights = w, .min_length = d.number("min_length", 0, 12)})};
  }
  const Tensor x = d.small();
  const std::int64_t axis = d.axis(x);
  if (d.chance(30)) {
    d.say(" argsort");
    return {argsort(x, axis, {.descending = d.flag("descending")})};
  }
  if (d.chance(50)) {
    const Sorted all = sort(x, axis, {.descending = d.flag("descending")});
    return {all.values, all.indices};
  }
  d.say(" topk");
  const std::int64_t k = d.number("k", 0, 3);
  const bool largest = d.flag("largest"), sorted = d.flag("sorted");
  const Sorted first = topk(x, k, axis, {.largest = largest, .sorted = sorted});
  return {first.values, first.indices};
}

Results multiplied(Draw& d) {
  const DType dtype = d.one_of({f32, f32, f64, f16, bf16});
  const auto size = [&] {
    return d.chance(6) ? std::int64_t{0} : 1 + d.below(d.chance(10) ? 40 : 6);
  };
  const std::int64_t k = size();
  Shape a{size(), k}, b{k, size()};
  for (auto batch = d.below(4); batch > 0 && d.chance(60); --batch) {
    const std::int64_t n = d.chance(5) ? 0 : 1 + d.below(3);
    a.insert(0, d.chance(30) ? 1 : n);
    if (d.chance(80)) b.insert(0, d.chance(30) ? 1 : n);
  }
  if (d.chance(8)) a = {k};
  if (d.chance(8)) b = {k};
  const Tensor x = d.of(a, dtype);
  return {matmul(x, d.chance(3) ? d.any() : d.of(b, dtype))};
}

Results layered(Draw& d) {
  const DType dtype = d.one_of({f32, f32, f64, f16, bf16});
  const auto size = [&] { return d.chance(6) ? std::int64_t{0} : 1 + d.below(6); };
  Shape shape = d.small_shape(1, 4);
  std::int64_t features = shape.back();
  const Tensor x = d.of(shape, dtype);
  const auto layers = 1 + d.below(3);
  std::vector<Tensor> weights, biases;
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::int64_t out = size();
    weights.push_back(d.of({out, features}, dtype));
    biases.push_back(d.maybe(d.of({out}, dtype)));
    features = out;
  }
  if (layers == 1) return {linear(x, weights[0], biases[0])};
  d.say(" mlp");
  if (d.chance(20)) biases.clear();
  return {mlp(x, weights, biases,
              d.one_of({Activation::none, Activation::relu, Activation::gelu_tanh}))};
}

Results in_rows(Draw& d) {
  const Tensor x = d.floating(0, 8);
  const std::int64_t n = x.rank() > 0 ? x.shape()[-1] : 1;
  switch (d.below(5)) {
    case 0:
      d.say(" softmax");
      return {softmax(x, d.axis(x))};
    case 1:
      d.say(" log_softmax");
      return {log_softmax(x, d.axis(x))};
    case 2: {
      d.say(" layer_norm");
      const Tensor weight = d.maybe(d.of({n}, x.dtype())), bias = d.maybe(d.of({n}, x.dtype()));
      return {layer_norm(x, weight, bias, d.chance(70) ? 1e-5 : d.real("eps"))};
    }
    case 3: {
      d.say(" rms_norm");
      const Tensor weight = d.maybe(d.of({n}, x.dtype()));
      return {rms_norm(x, weight, d.chance(70) ? 1e-5 : d.real("eps"))};
    }
    default: {
      d.say(" dropout");
      const double p = d.chance(70) ? 0.5 : d.real("p");
      return {dropout(x, p, d.flag("training"))};
    }
  }
}

Results from_loss(Draw& d, const Loss& loss) {
  Results all{loss.sum, loss.weight};
  if (d.chance(50)) all.push_back(loss.mean());
  loss.item();
  return all;
}

CrossEntropyOptions class_options(Draw& d, const Shape& rows, std::int64_t classes, DType dtype) {
  CrossEntropyOptions options;
  if (d.chance(50)) options.ignore_index = d.number("ignore_index", -1, 3);
  if (d.chance(50)) options.label_smoothing = d.chance(50) ? 0.1 : d.real("label_smoothing");
  if (d.chance(30)) options.class_weights = d.of({classes}, dtype).detach();
  if (d.chance(30)) options.row_weights = d.of(rows, dtype).detach();
  if (d.chance(30)) options.z_loss = d.chance(50) ? 0.1 : d.real("z_loss");
  return options;
}

Results of_vocabulary(Draw& d) {
  const Tensor x = d.floating(1, 4);
  Shape leading = x.shape();
  const std::int64_t width = leading.back();
  leading.pop_back();
  const std::int64_t classes = d.number("classes", 0, 9);
  const Tensor w = d.of({classes, width}, x.dtype());
  const CrossEntropyOptions options = class_options(d, leading, classes, x.dtype());
  // Each chunk reads the weights of all classes: small chunks of many classes take minutes.
  const std::int64_t least = classes > 4096 ? 1024 : 0;
  const auto chunk = [&](const char* name) {
    const std::int64_t n = d.number(name, -1, 5);
    return n > 0 ? std::max(n, least) : n;
  };
  const Tensor bias = d.maybe(d.of({classes}, x.dtype()));
  const std::int64_t chunk_rows = chunk("chunk_rows"), chunk_classes = chunk("chunk_classes");
  return from_loss(d,
                   linear_cross_entropy(
                       x, w, d.index(leading, classes), options,
                       {.bias = bias, .chunk_rows = chunk_rows, .chunk_classes = chunk_classes}));
}

Results of_classes(Draw& d) {
  const Tensor x = d.floating(1, 4);
  Shape leading = x.shape();
  const std::int64_t classes = leading.back();
  leading.pop_back();
  const Tensor target = d.index(leading, classes);
  const CrossEntropyOptions options = class_options(d, leading, classes, x.dtype());
  const bool log_input = d.flag("nll");
  return from_loss(d, log_input ? nll_loss(x, target, options) : cross_entropy(x, target, options));
}

Results of_sequences(Draw& d) {
  const Tensor x = d.floating(2, 3);
  const bool single = x.rank() == 2;
  const std::int64_t n = single ? 1 : x.size(1), classes = x.shape().back();
  const std::int64_t longest = d.number("longest", 0, 5);
  const Tensor targets = d.index(d.chance(70) ? Shape{n, longest} : Shape{longest}, classes);
  const CtcOptions options{.blank = d.number("blank", -1, 3), .zero_infinity = d.flag("zero")};
  const Tensor steps = d.index({n}, x.size(0) + 1), labels = d.index({n}, longest + 1);
  return from_loss(d, ctc_loss(x, targets, steps, labels, options));
}

Results of_pairs(Draw& d) {
  const Tensor x = d.floating(0, 5);
  const Tensor y = d.of(x.shape(), x.dtype());
  switch (d.below(6)) {
    case 0:
      d.say(" mse");
      return from_loss(d, mse_loss(x, y));
    case 1:
      d.say(" l1");
      return from_loss(d, l1_loss(x, y));
    case 2:
      d.say(" huber");
      return from_loss(d, huber_loss(x, y, d.chance(50) ? 1.0 : d.real("delta")));
    case 3:
      d.say(" bce");
      return from_loss(d, bce_with_logits(x, y));
    case 4:
      d.say(" kl");
      return from_loss(d, kl_div(x, y));
    default:
      d.say(" info_nce");
      return from_loss(d, info_nce(x, y, d.chance(70) ? 0.1 : d.real("temperature")));
  }
}

}  // namespace

std::vector<Call> other_calls() {
  std::vector<Call> calls;
  for (int i = 0; i < 4; ++i) {
    const Call all[] = {{"indexing", indexed},
                        {"matmul", multiplied},
                        {"linear", layered},
                        {"rows", in_rows},
                        {"classes", of_classes},
                        {"pairs", of_pairs},
                        {"vocabulary", of_vocabulary},
                        {"sequences", of_sequences},
                        {"sort", in_order},
                        {"scan", scanned},
                        {"statistics", statistics}};
    calls.insert(calls.end(), std::begin(all), std::end(all));
  }
  return calls;
}

}  // namespace fuzz
