// What autocast does to each op: the dtype that comes out, for operands of f32, of 16 bits, and of
// both.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "kernels/math/binary.h"
#include "kernels/math/unary.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;

namespace {

using Op = std::function<Tensor(const Tensor& a, const Tensor& b)>;

struct Case {
  const char* name;
  Op run;  // a and b are [4, 4]
};

std::vector<Case> cases() {
  const auto unary = [](Tensor (*f)(const Tensor&)) {
    return [f](const Tensor& a, const Tensor&) { return f(a); };
  };
  const auto binary = [](Tensor (*f)(const Tensor&, const Tensor&)) {
    return [f](const Tensor& a, const Tensor& b) { return f(a, b); };
  };
  const auto loss = [](Loss (*f)(const Tensor&, const Tensor&)) {
    return [f](const Tensor& a, const Tensor& b) { return f(a, b).sum; };
  };
  const auto reduction = [](Tensor (*f)(const Tensor&, const Axes&, bool)) {
    return [f](const Tensor& a, const Tensor&) { return f(a, {}, false); };
  };
  const Tensor index = zeros({4}, i64);
  return {
      {"matmul", binary(matmul)},
      {"matmul row", [](auto& a, auto& b) { return matmul(a[0], b); }},
      {"matmul batch", [](auto& a, auto& b) { return matmul(unsqueeze(a, 0), b); }},
      {"linear", [](auto& a, auto& b) { return linear(a, b); }},
      {"linear bias", [](auto& a, auto& b) { return linear(unsqueeze(a, 0), b, b[0]); }},
      {"mlp", [](auto& a, auto& b) { return mlp(a, std::vector<Tensor>{b}); }},
      {"attention",
       [](auto& a, auto& b) {
         const Tensor keys = reshape(b, {1, 1, 4, 4});
         return attention(reshape(a, {1, 1, 4, 4}), keys, keys);
       }},
      {"recurrent",
       [](auto& a, auto& b) {
         return recurrent(RecurrentCell::lstm, reshape(a, {2, 2, 4}), slice(b, 1, 0, 1)).output;
       }},
      {"conv1d", [](auto& a, auto& b) { return conv1d(a, unsqueeze(b, 2), b[0]); }},
      {"conv2d",
       [](auto& a, auto& b) {
         return conv2d(unsqueeze(a, 2), reshape(b, {4, 4, 1, 1}), b[0]);
       }},
      {"conv3d",
       [](auto& a, auto& b) {
         return conv3d(reshape(a, {4, 4, 1, 1}), reshape(b, {4, 4, 1, 1, 1}), b[0]);
       }},
      {"conv_transpose1d",
       [](auto& a, auto& b) { return conv_transpose1d(a, unsqueeze(b, 2), b[0]); }},
      {"conv_transpose2d",
       [](auto& a, auto& b) {
         return conv_transpose2d(unsqueeze(a, 2), reshape(b, {4, 4, 1, 1}));
       }},
      {"conv_transpose3d",
       [](auto& a, auto& b) {
         return conv_transpose3d(reshape(a, {4, 4, 1, 1}), reshape(b, {4, 4, 1, 1, 1}));
       }},

      {"exp", unary(firn::exp)},
      {"log", unary(firn::log)},
      {"rsqrt", unary(rsqrt)},
      {"square", unary(square)},
      {"reciprocal", unary(reciprocal)},
      {"softplus", unary(softplus)},
      {"log1p", unary(firn::log1p)},
      {"expm1", unary(firn::expm1)},
      {"log2", unary(firn::log2)},
      {"exp2", unary(firn::exp2)},
      {"log10", unary(firn::log10)},
      {"tan", unary(firn::tan)},
      {"asin", unary(firn::asin)},
      {"acos", unary(firn::acos)},
      {"sinh", unary(firn::sinh)},
      {"cosh", unary(firn::cosh)},
      {"pow 0.5", [](auto& a, auto&) { return firn::pow(a, 0.5); }},
      {"pow 3", [](auto& a, auto&) { return firn::pow(a, 3); }},
      {"pow tensor", [](auto& a, auto& b) { return firn::pow(a, b); }},
      {"softmax", [](auto& a, auto&) { return softmax(a); }},
      {"softmax axis", [](auto& a, auto&) { return softmax(a, 0); }},
      {"log_softmax", [](auto& a, auto&) { return log_softmax(a); }},
      {"layer_norm", [](auto& a, auto& b) { return layer_norm(a, b[0], b[1]); }},
      {"rms_norm", [](auto& a, auto& b) { return rms_norm(a, b[0]); }},
      {"sum", reduction(firn::sum)},
      {"mean", reduction(firn::mean)},
      {"norm", reduction(firn::norm)},
      {"var", [](auto& a, auto&) { return var(a); }},
      {"std", [](auto& a, auto&) { return firn::std(a); }},
      {"prod", reduction(firn::prod)},
      {"logsumexp", reduction(firn::logsumexp)},
      {"cumsum", [](auto& a, auto&) { return cumsum(a, 1); }},
      {"cumprod", [](auto& a, auto&) { return cumprod(a, 1); }},
      {"logcumsumexp", [](auto& a, auto&) { return logcumsumexp(a, 1); }},
      {"cross_entropy", [=](auto& a, auto&) { return cross_entropy(a, index).sum; }},
      {"linear_cross_entropy",
       [=](auto& a, auto& b) { return linear_cross_entropy(a, b, index).sum; }},
      {"nll_loss", [=](auto& a, auto&) { return nll_loss(a, index).sum; }},
      {"mse_loss", loss(mse_loss)},
      {"l1_loss", loss(l1_loss)},
      {"bce_with_logits", loss(bce_with_logits)},
      {"kl_div", loss(kl_div)},
      {"bce_loss", loss(bce_loss)},
      {"focal_loss", [](auto& a, auto& b) { return focal_loss(a, b).sum; }},
      {"huber_loss", [](auto& a, auto& b) { return huber_loss(a, b).sum; }},
      {"ctc_loss",
       [](auto& a, auto&) {
         const Tensor count = ones({1}, i64);
         return ctc_loss(reshape(a, {4, 1, 4}), ones({1, 1}, i64), count, count).sum;
       }},

      {"add", binary(add)},
      {"sub", binary(sub)},
      {"mul", binary(mul)},
      {"div", binary(div)},
      {"minimum", binary(minimum)},
      {"maximum", binary(maximum)},
      {"where",
       [](auto& a, auto& b) {
         return where(ones({4, 4}, boolean), a, b);
       }},
      {"atan2", binary(firn::atan2)},
      {"remainder", binary(remainder)},
      {"logaddexp", binary(logaddexp)},
      {"prelu", [](auto& a, auto& b) { return prelu(a, b[0]); }},
      {"lerp", [](auto& a, auto& b) { return lerp(a, b, 0.5); }},
      {"lerp tensor", [](auto& a, auto& b) { return lerp(a, a, b); }},
      {"addcmul", [](auto& a, auto& b) { return addcmul(a, a, b); }},
      {"clamp tensor", [](auto& a, auto& b) { return clamp(a, b, Tensor()); }},
      {"masked_fill",
       [](auto& a, auto&) {
         return masked_fill(a, ones({4, 4}, boolean), 2);
       }},
      {"cat",
       [](auto& a, auto& b) {
         return cat({a, b});
       }},
      {"stack",
       [](auto& a, auto& b) {
         return stack({a, b});
       }},
      {"less", binary(lt)},
      {"equal", binary(eq)},

      {"isnan", unary(firn::isnan)},
      {"logical_or", binary(logical_or)},

      {"relu", unary(relu)},
      {"hardswish", unary(hardswish)},
      {"erf", unary(firn::erf)},
      {"floor", unary(firn::floor)},
      {"gelu", unary(gelu)},
      {"tanh", unary(firn::tanh)},
      {"sqrt", unary(firn::sqrt)},
      {"clamp", [](auto& a, auto&) { return clamp(a, 0, 1); }},
      {"times number", [](auto& a, auto&) { return a * 2.0; }},
      {"max", reduction(firn::max)},
      {"argmax", [](auto& a, auto&) { return argmax(a); }},
      {"any", reduction(firn::any)},
      {"cummax", [](auto& a, auto&) { return cummax(a, 0).values; }},
      {"median", [](auto& a, auto&) { return median(a, 0).values; }},
      {"quantile", [](auto& a, auto&) { return quantile(a, 0.3); }},
      {"sort", [](auto& a, auto&) { return sort(a).values; }},
      {"argsort", [](auto& a, auto&) { return argsort(a); }},
      {"topk", [](auto& a, auto&) { return topk(a, 2).values; }},
      {"dropout", [](auto& a, auto&) { return dropout(a, 0.5); }},
      {"embedding", [=](auto& a, auto&) { return embedding(a, index); }},
      {"index_select", [=](auto& a, auto&) { return index_select(a, 0, index); }},
      {"gather",
       [](auto& a, auto&) {
         return gather(a, 0, zeros({1, 4}, i64));
       }},
      {"one_hot", [=](auto&, auto&) { return one_hot(index, 3); }},
      {"reshape",
       [](auto& a, auto&) {
         return reshape(a, {2, 8});
       }},
      {"transpose", [](auto& a, auto&) { return transpose(a, 0, 1); }},
      {"slice", [](auto& a, auto&) { return slice(a, 0, 1, 3); }},
      {"pad",
       [](auto& a, auto&) {
         return pad(a, {1, 0}, {0, 1});
       }},
      {"clone", unary(firn::clone)},
      {"cast", [](auto& a, auto&) { return cast(a, bf16); }},
      {"exp in place",
       [](auto& a, auto&) {
         Tensor t = clone(a);
         return exp_(t);
       }},
      {"add in place",
       [](auto& a, auto& b) {
         Tensor t = clone(a);
         return add_(t, b);
       }},
  };
}

std::string table(DType lower) {
  const auto dtype = [](const Tensor& t) { return std::string(to_string(t.dtype())); };
  const Tensor wide = full({4, 4}, 0.5), narrow = full({4, 4}, 0.5, lower);
  const Autocast guard(lower);
  std::string text;
  for (const Case& c : cases())
    text += std::string(c.name) + ": " + dtype(c.run(wide, wide)) + " " +
            dtype(c.run(narrow, narrow)) + " " + dtype(c.run(narrow, wide)) + " " +
            dtype(c.run(wide, narrow)) + "\n";
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Output for: both f32; both f16; f16 and f32; f32 and f16.
const char* const kGolden =
    R"(matmul: f16 f16 f16 f16
matmul row: f16 f16 f16 f16
matmul batch: f16 f16 f16 f16
linear: f16 f16 f16 f16
linear bias: f16 f16 f16 f16
mlp: f16 f16 f16 f16
attention: f16 f16 f16 f16
recurrent: f16 f16 f16 f16
conv1d: f16 f16 f16 f16
conv2d: f16 f16 f16 f16
conv3d: f16 f16 f16 f16
conv_transpose1d: f16 f16 f16 f16
conv_transpose2d: f16 f16 f16 f16
conv_transpose3d: f16 f16 f16 f16
exp: f32 f32 f32 f32
log: f32 f32 f32 f32
rsqrt: f32 f32 f32 f32
square: f32 f32 f32 f32
reciprocal: f32 f32 f32 f32
softplus: f32 f32 f32 f32
log1p: f32 f32 f32 f32
expm1: f32 f32 f32 f32
log2: f32 f32 f32 f32
exp2: f32 f32 f32 f32
log10: f32 f32 f32 f32
tan: f32 f32 f32 f32
asin: f32 f32 f32 f32
acos: f32 f32 f32 f32
sinh: f32 f32 f32 f32
cosh: f32 f32 f32 f32
pow 0.5: f32 f32 f32 f32
pow 3: f32 f32 f32 f32
pow tensor: f32 f32 f32 f32
softmax: f32 f32 f32 f32
softmax axis: f32 f32 f32 f32
log_softmax: f32 f32 f32 f32
layer_norm: f32 f32 f32 f32
rms_norm: f32 f32 f32 f32
sum: f32 f32 f32 f32
mean: f32 f32 f32 f32
norm: f32 f32 f32 f32
var: f32 f32 f32 f32
std: f32 f32 f32 f32
prod: f32 f32 f32 f32
logsumexp: f32 f32 f32 f32
cumsum: f32 f32 f32 f32
cumprod: f32 f32 f32 f32
logcumsumexp: f32 f32 f32 f32
cross_entropy: f32 f32 f32 f32
linear_cross_entropy: f32 f32 f32 f32
nll_loss: f32 f32 f32 f32
mse_loss: f32 f32 f32 f32
l1_loss: f32 f32 f32 f32
bce_with_logits: f32 f32 f32 f32
kl_div: f32 f32 f32 f32
bce_loss: f32 f32 f32 f32
focal_loss: f32 f32 f32 f32
huber_loss: f32 f32 f32 f32
ctc_loss: f32 f32 f32 f32
add: f32 f16 f32 f32
sub: f32 f16 f32 f32
mul: f32 f16 f32 f32
div: f32 f16 f32 f32
minimum: f32 f16 f32 f32
maximum: f32 f16 f32 f32
where: f32 f16 f32 f32
atan2: f32 f16 f32 f32
remainder: f32 f16 f32 f32
logaddexp: f32 f16 f32 f32
prelu: f32 f16 f32 f32
lerp: f32 f16 f32 f32
lerp tensor: f32 f16 f32 f32
addcmul: f32 f16 f32 f32
clamp tensor: f32 f16 f32 f32
masked_fill: f32 f16 f16 f32
cat: f32 f16 f32 f32
stack: f32 f16 f32 f32
less: bool bool bool bool
equal: bool bool bool bool
isnan: bool bool bool bool
logical_or: bool bool bool bool
relu: f32 f16 f16 f32
hardswish: f32 f16 f16 f32
erf: f32 f16 f16 f32
floor: f32 f16 f16 f32
gelu: f32 f16 f16 f32
tanh: f32 f16 f16 f32
sqrt: f32 f16 f16 f32
clamp: f32 f16 f16 f32
times number: f32 f16 f16 f32
max: f32 f16 f16 f32
argmax: i64 i64 i64 i64
any: bool bool bool bool
cummax: f32 f16 f16 f32
median: f32 f16 f16 f32
quantile: f32 f16 f16 f32
sort: f32 f16 f16 f32
argsort: i64 i64 i64 i64
topk: f32 f16 f16 f32
dropout: f32 f16 f16 f32
embedding: f32 f16 f16 f32
index_select: f32 f16 f16 f32
gather: f32 f16 f16 f32
one_hot: f32 f32 f32 f32
reshape: f32 f16 f16 f32
transpose: f32 f16 f16 f32
slice: f32 f16 f16 f32
pad: f32 f16 f16 f32
clone: f32 f16 f16 f32
cast: bf16 bf16 bf16 bf16
exp in place: f32 f16 f16 f32
add in place: f32 f16 f16 f32
)";

const char* name_of(math::Autocast policy) {
  constexpr const char* names[] = {"lower", "fp32", "promote", "keep"};
  return names[static_cast<int>(policy)];
}

}  // namespace

TEST_CASE("[S26] the dtype that each op runs in under f16") { CHECK(table(f16) == kGolden); }

TEST_CASE("[S26] the dtype that each op runs in under bf16") {
  CHECK(table(bf16) == replaced(kGolden, " f16", " bf16"));
}

TEST_CASE("[S26] the policy of every elementwise op") {
  std::string text;
  for (const math::UnaryInfo& i : math::kUnaryOps)
    if (i.autocast != math::Autocast::keep)
      text += std::string(i.name) + " " + name_of(i.autocast) + "\n";
  for (const math::BinaryInfo& i : math::kBinaryOps)
    if (i.autocast != math::Autocast::promote)
      text += std::string(i.name) + " " + name_of(i.autocast) + "\n";
  CHECK(text == R"(exp fp32
log fp32
rsqrt fp32
square fp32
reciprocal fp32
tan fp32
asin fp32
acos fp32
sinh fp32
cosh fp32
log10 fp32
log1p fp32
expm1 fp32
log2 fp32
exp2 fp32
pow_number fp32
softplus fp32
pow fp32
bitwise_and keep
bitwise_or keep
bitwise_xor keep
squared_error fp32
absolute_error fp32
huber fp32
bce_with_logits fp32
bce fp32
kl_div fp32
)");
}

TEST_CASE("[S26] the two kinds of 16 bits meet in f32, and in the guard's dtype in products") {
  const Tensor h = ones({4, 4}, f16), b = ones({4, 4}, bf16);
  const Autocast guard(bf16);
  CHECK((h + b).dtype() == f32);
  CHECK(cat({h, b}).dtype() == f32);
  CHECK(matmul(h, b).dtype() == bf16);
  CHECK(matmul(h, h).dtype() == bf16);
}

TEST_CASE("[S26] a guard of f32 runs matrix products in f32, whatever comes") {
  const Tensor h = ones({4, 4}, f16), x = ones({4, 4});
  const Autocast guard(f32);
  CHECK(matmul(h, x).dtype() == f32);
  CHECK(matmul(h, h).dtype() == f32);
  CHECK(linear(x, h, h[0]).dtype() == f32);
  CHECK(relu(h).dtype() == f16);
}

TEST_CASE("[S26] f64 and integers are left alone") {
  const Tensor d = full({4, 4}, 0.5, f64), n = ones({4, 4}, i64);
  const Autocast guard(f16);
  CHECK(matmul(d, d).dtype() == f64);
  CHECK(linear(d, d, d[0]).dtype() == f64);
  CHECK(softmax(d).dtype() == f64);
  CHECK(firn::exp(d).dtype() == f64);
  CHECK(sum(d).dtype() == f64);
  CHECK(layer_norm(d, d[0], d[0]).dtype() == f64);
  CHECK(mse_loss(d, d).sum.dtype() == f64);
  CHECK(cat({d, d}).dtype() == f64);
  CHECK(sum(n).dtype() == i64);
  CHECK((n + n).dtype() == i64);
  const Tensor x = ones({4, 4});
  using firn::testing::error_of;
  CHECK(error_of([&] { matmul(d, x); }).find("dtypes differ") != std::string::npos);
  CHECK(error_of([&] { linear(x, x, d[0]); }).find("dtypes differ") != std::string::npos);
  CHECK(error_of([&] { d + x; }).find("dtypes differ") != std::string::npos);
  CHECK(error_of([&] { x + n; }).find("dtypes differ") != std::string::npos);
  CHECK(error_of([&] { cat({x, d}); }).find("dtypes differ") != std::string::npos);
}

TEST_CASE("[S26] without a guard operands of two dtypes throw") {
  const Tensor h = ones({4, 4}, f16), x = ones({4, 4});
  using firn::testing::error_of;
  const auto refused = [&](const std::function<void()>& fn) {
    return error_of(fn).find("dtypes differ: ") != std::string::npos;
  };
  CHECK(refused([&] { matmul(h, x); }));
  CHECK(refused([&] { linear(h, x); }));
  CHECK(refused([&] { linear(x, x, h[0]); }));
  CHECK(refused([&] { h + x; }));
  CHECK(refused([&] { return where(ones({4, 4}, boolean), h, x); }));
  CHECK(refused([&] { cat({h, x}); }));
  CHECK(refused([&] {
    Tensor t = clone(h);
    add_(t, x);
  }));
}

TEST_CASE("[S26] what has the dtype already is not cast") {
  const Tensor h = ones({4, 4}, f16);
  const Autocast guard(f16);
  const DtypeTrace trace;
  linear(h, h, h[0]);
  matmul(h, h);
  h + h;
  CHECK(trace.text() ==
        "select f16 -> f16\nlinear f16 f16 f16 -> f16\nmatmul f16 f16 -> f16\n"
        "add f16 f16 -> f16\n");
}

TEST_CASE("[S26] sums under autocast do not overflow 16 bits") {
  const Tensor big = full({1000}, 60000, f16);
  CHECK(std::isinf(sum(big).item()));
  const Autocast guard(f16);
  CHECK(sum(big).item() == Approx(59994000).epsilon(1e-3));
  CHECK(norm(big).item() == Approx(60000 * std::sqrt(1000.0)).epsilon(1e-3));
  CHECK(square(full({1}, 300, f16)).item() == 90000);
  CHECK(firn::exp(full({1}, 12, f16)).item() == Approx(162754.79).epsilon(1e-5));
}
