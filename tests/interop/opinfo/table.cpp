#include "interop/opinfo/table.h"

#include <algorithm>
#include <limits>

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

/// What None in a list of integers is sent as.
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

Axes axes(A a, const char* name) {
  Axes out;
  for (const std::int64_t v : a.list(name)) out.push_back(v);
  return out;
}

Shape shape(A a, const char* name) {
  Shape out;
  for (const std::int64_t v : a.list(name)) out.push_back(v);
  return out;
}

/// Height and width: a list of two, one number for both, or `otherwise`.
Size2 extent(A a, const char* name, Size2 otherwise) {
  const auto sizes = a.list(name);
  if (sizes.empty()) return otherwise;
  return sizes.size() == 1 ? Size2(sizes[0]) : Size2(sizes[0], sizes[1]);
}

std::int64_t length(A a, const char* name, std::int64_t otherwise) {
  const auto sizes = a.list(name);
  return sizes.empty() ? otherwise : sizes[0];
}

/// Refuses unless the argument is not given or equals `value`: firn has no such argument.
void only(A a, const char* name, double value) {
  if (a.has(name) && a.number(name) != value)
    throw Refused(std::string("argument '") + name + "' is not " + std::to_string(value));
}

const Tensor& x(A a) { return a.tensor("input"); }

// ---- Elementwise ----
template <Tensor (*f)(const Tensor&)>
Results unary(A a) {
  return {f(x(a))};
}

/// other, or other * alpha if that is given.
Tensor scaled_other(A a) {
  const double alpha = a.number("alpha", 1);
  return alpha == 1 ? a.tensor("other") : mul(a.tensor("other"), alpha);
}

template <Tensor (*f)(const Tensor&, const Tensor&), Tensor (*with_number)(const Tensor&, double)>
Results binary(A a) {
  if (!a.is<Tensor>("other")) return {with_number(x(a), a.number("other") * a.number("alpha", 1))};
  return {f(x(a), scaled_other(a))};
}

template <Tensor (*f)(const Tensor&, const Tensor&)>
Results of_two(A a) {
  return {f(x(a), a.tensor("other"))};
}

/// Comparisons take a number as a tensor of the other's dtype.
template <Tensor (*f)(const Tensor&, const Tensor&)>
Results comparison(A a) {
  if (a.is<Tensor>("other")) return of_two<f>(a);
  return {f(x(a), full({}, a.number("other"), x(a).dtype()))};
}

Tensor reverse_sub(const Tensor& t, const Tensor& other) { return sub(other, t); }
Tensor reverse_sub_number(const Tensor& t, double other) { return other - t; }
Tensor reverse_div(const Tensor& t, const Tensor& other) { return div(other, t); }
Tensor reverse_div_number(const Tensor& t, double other) { return other / t; }

Results clamped(A a) {
  if (a.is<Tensor>("min") || a.is<Tensor>("max"))
    return {clamp(x(a), a.tensor_or_none("min"), a.tensor_or_none("max"))};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {clamp(x(a), a.number("min", -kInfinity), a.number("max", kInfinity))};
}

// ---- Reductions ----
template <Tensor (*f)(const Tensor&, const Axes&, bool)>
Results reduction(A a) {
  return {f(x(a), axes(a, "dim"), a.flag("keepdim", false))};
}

Results euclidean(A a) {
  if (a.is<std::string>("ord")) {
    if (a.text("ord", "") != "fro") throw Refused("argument 'ord' is not 2");
  } else {
    only(a, "ord", 2);
  }
  return {norm(x(a), axes(a, "dim"), a.flag("keepdim", false))};
}

using Spread = Tensor (*)(const Tensor&, const Axes&, std::int64_t, bool);

/// var() or std(): over `dim`, or torch.var(input, unbiased).
template <Spread f>
Results spread(A a) {
  if (a.is<bool>("dim")) return {f(x(a), {}, a.flag("dim", true) ? 1 : 0, false)};
  std::int64_t correction = a.flag("unbiased", true) ? 1 : 0;
  if (a.has("correction")) {
    if (!a.is<std::int64_t>("correction")) throw Refused("argument 'correction' is not an integer");
    correction = a.integer("correction");
  }
  return {f(x(a), axes(a, "dim"), correction, a.flag("keepdim", false))};
}
Results var_and_mean(A a) {
  return {spread<var>(a)[0],
          mean(x(a), a.is<bool>("dim") ? Axes{} : axes(a, "dim"), a.flag("keepdim", false))};
}

/// argmax() or argmin(), of all elements if no axis is given.
template <Tensor (*f)(const Tensor&, std::int64_t, bool)>
Results position(A a) {
  if (a.has("dim")) return {f(x(a), a.integer("dim"), a.flag("keepdim", false))};
  if (a.flag("keepdim", false)) throw Refused("argument 'keepdim' is given without 'dim'");
  return {f(reshape(x(a), {-1}), 0, false)};
}

template <Sorted (*f)(const Tensor&, std::int64_t, bool)>
Results with_position(A a) {
  const Sorted found = f(x(a), a.integer("dim"), a.flag("keepdim", false));
  return {found.values, found.indices};
}

// ---- Shape ----
std::int64_t chosen_axis(A a) { return a.integer("dim", 0); }

Results pieces(A a) {
  if (a.is<std::int64_t>("sizes")) return split(x(a), a.integer("sizes"), chosen_axis(a));
  return split(x(a), a.list("sizes"), chosen_axis(a));
}

// ---- Rows, pooling, norms ----
/// firn normalises the last axis: PyTorch's normalized axes become one, and come back after.
template <class F>
Results over_last_axes(A a, const F& normalise) {
  const auto axes = static_cast<std::int64_t>(a.list("normalized_shape").size());
  std::int64_t row = 1;
  for (std::int64_t i = 1; i <= axes; ++i) row *= x(a).size(-i);
  if (row == 1) throw Refused("rows of one element");
  const Tensor weight = a.tensor_or_none("weight"), bias = a.tensor_or_none("bias");
  if (axes == 1) return {normalise(x(a), weight, bias)};
  const auto flat = [](const Tensor& t) { return t.defined() ? flatten(t) : t; };
  return {reshape(normalise(flatten(x(a), -axes), flat(weight), flat(bias)), x(a).shape())};
}

Results layer_normed(A a) {
  return over_last_axes(a, [&](const Tensor& t, const Tensor& weight, const Tensor& bias) {
    return layer_norm(t, weight, bias, a.number("eps", 1e-5));
  });
}

Results rms_normed(A a) {
  const double eps = x(a).dtype() == f64 ? std::numeric_limits<double>::epsilon()
                                         : std::numeric_limits<float>::epsilon();
  return over_last_axes(a, [&](const Tensor& t, const Tensor& weight, const Tensor&) {
    return rms_norm(t, weight, a.number("eps", eps));
  });
}

Pool2dOptions pooling(A a) {
  return {.stride = extent(a, "stride", 0),
          .padding = extent(a, "padding", 0),
          .dilation = extent(a, "dilation", 1),
          .ceil_mode = a.flag("ceil_mode", false),
          .count_padding = a.flag("count_include_pad", true)};
}

/// None in a pair stands for the input's own size.
Size2 adaptive_size(A a) {
  if (!a.has("output_size")) throw Refused("argument 'output_size' is None");
  Size2 size = extent(a, "output_size", 1);
  if (size.h == kNone) size.h = x(a).size(-2);
  if (size.w == kNone) size.w = x(a).size(-1);
  return size;
}

Results batch_normed(A a) {
  const double eps = a.number("eps", 1e-5);
  const Tensor weight = a.tensor_or_none("weight"), bias = a.tensor_or_none("bias");
  if (a.flag("training", false)) return {batch_norm(x(a), weight, bias, eps)};
  const DType wide = compute_dtype(x(a).dtype());
  const Moments moments{a.tensor("running_mean").to(wide), a.tensor("running_var").to(wide)};
  return {batch_norm(x(a), weight, bias, moments, eps)};
}

const std::vector<Entry> kOperations = {
    // ---- Elementwise, one operand ----
    {"neg", "input", Sums::no, unary<neg>},
    {"abs", "input", Sums::no, unary<abs>},
    {"exp", "input", Sums::no, unary<exp>},
    {"log", "input", Sums::no, unary<log>},
    {"sqrt", "input", Sums::no, unary<sqrt>},
    {"rsqrt", "input", Sums::no, unary<rsqrt>},
    {"square", "input", Sums::no, unary<square>},
    {"reciprocal", "input", Sums::no, unary<reciprocal>},
    {"sigmoid", "input", Sums::no, unary<sigmoid>},
    {"tanh", "input", Sums::no, unary<tanh>},
    {"sin", "input", Sums::no, unary<sin>},
    {"cos", "input", Sums::no, unary<cos>},
    {"nn.functional.relu", "input inplace?", Sums::no, unary<relu>},
    {"nn.functional.silu", "input inplace?", Sums::no, unary<silu>},
    {"nn.functional.leaky_relu", "input negative_slope inplace?", Sums::no,
     [](A a) -> Results { return {leaky_relu(x(a), a.number("negative_slope", 0.01))}; }},
    {"nn.functional.elu", "input alpha inplace?", Sums::no,
     [](A a) -> Results { return {elu(x(a), a.number("alpha", 1))}; }},
    {"nn.functional.gelu", "input approximate", Sums::no,
     [](A a) -> Results {
       return {a.text("approximate", "none") == "tanh" ? gelu_tanh(x(a)) : gelu(x(a))};
     }},
    {"nn.functional.softplus", "input beta threshold", Sums::no,
     [](A a) -> Results {
       only(a, "beta", 1);
       only(a, "threshold", 20);
       return {softplus(x(a))};
     }},
    {"clamp", "input min max", Sums::no, clamped},
    {"clamp_min", "input min", Sums::no, clamped},
    {"clamp_max", "input max", Sums::no, clamped},
    {"clone", "input memory_format!", Sums::no, unary<clone>},
    {"contiguous", "input memory_format!", Sums::no, unary<contiguous>},

    // ---- Elementwise, two operands ----
    {"add", "input other alpha", Sums::no, binary<add, add>},
    {"sub", "input other alpha", Sums::no, binary<sub, sub>},
    {"mul", "input other", Sums::no, binary<mul, mul>},
    {"div/no_rounding_mode", "input other", Sums::no, binary<div, div>},
    {"true_divide", "input other", Sums::no, binary<div, div>},
    {"pow", "input other", Sums::no, binary<pow, pow>},
    {"__radd__", "input other", Sums::no, binary<add, add>},
    {"__rmul__", "input other", Sums::no, binary<mul, mul>},
    {"__rsub__", "input other", Sums::no, binary<reverse_sub, reverse_sub_number>},
    {"__rdiv__", "input other", Sums::no, binary<reverse_div, reverse_div_number>},
    {"minimum", "input other", Sums::no, of_two<minimum>},
    {"maximum", "input other", Sums::no, of_two<maximum>},
    {"min/binary", "input other", Sums::no, of_two<minimum>},
    {"max/binary", "input other", Sums::no, of_two<maximum>},
    {"eq", "input other", Sums::no, comparison<eq>},
    {"ne", "input other", Sums::no, comparison<ne>},
    {"lt", "input other", Sums::no, comparison<lt>},
    {"le", "input other", Sums::no, comparison<le>},
    {"gt", "input other", Sums::no, comparison<gt>},
    {"ge", "input other", Sums::no, comparison<ge>},
    {"where", "input condition other", Sums::no,
     [](A a) -> Results { return {where(a.tensor("condition"), x(a), a.tensor("other"))}; }},

    // ---- Reductions ----
    {"sum", "input dim keepdim dtype!", Sums::yes, reduction<sum>},
    {"mean", "input dim keepdim dtype!", Sums::yes, reduction<mean>},
    {"amax", "input dim keepdim", Sums::no, reduction<max>},
    {"amin", "input dim keepdim", Sums::no, reduction<min>},
    {"max/reduction_no_dim", "input", Sums::no, reduction<max>},
    {"min/reduction_no_dim", "input", Sums::no, reduction<min>},
    {"max/reduction_with_dim", "input dim keepdim", Sums::no, with_position<max_with_indices>},
    {"min/reduction_with_dim", "input dim keepdim", Sums::no, with_position<min_with_indices>},
    {"argmax", "input dim keepdim", Sums::no, position<argmax>},
    {"argmin", "input dim keepdim", Sums::no, position<argmin>},
    {"prod", "input dim keepdim dtype!", Sums::yes, reduction<prod>},
    {"any", "input dim keepdim", Sums::no, reduction<any>},
    {"all", "input dim keepdim", Sums::no, reduction<all>},
    {"count_nonzero", "input dim", Sums::no,
     [](A a) -> Results { return {count_nonzero(x(a), axes(a, "dim"))}; }},
    {"logsumexp", "input dim keepdim", Sums::yes, reduction<logsumexp>},
    {"var", "input dim unbiased keepdim correction", Sums::yes, spread<var>},
    {"var/unbiased", "input unbiased", Sums::yes, spread<var>},
    {"std", "input dim unbiased keepdim correction", Sums::yes, spread<firn::std>},
    {"std/unbiased", "input unbiased", Sums::yes, spread<firn::std>},
    {"var_mean", "input dim unbiased keepdim correction", Sums::yes, var_and_mean},
    {"var_mean/unbiased", "input unbiased", Sums::yes, var_and_mean},
    {"linalg.vector_norm", "input ord dim keepdim dtype!", Sums::yes, euclidean},
    {"norm", "input ord dim keepdim dtype!", Sums::yes, euclidean},
    {"norm/fro", "input ord dim keepdim dtype!", Sums::yes, euclidean},

    // ---- Shape ----
    {"reshape", "input *shape", Sums::no,
     [](A a) -> Results { return {reshape(x(a), shape(a, "shape"))}; }},
    {"view", "input *shape", Sums::no,
     [](A a) -> Results { return {reshape(x(a), shape(a, "shape"))}; }},
    {"flatten", "input start_dim end_dim", Sums::no,
     [](A a) -> Results {
       return {flatten(x(a), a.integer("start_dim", 0), a.integer("end_dim", -1))};
     }},
    {"permute", "input *dims", Sums::no,
     [](A a) -> Results { return {permute(x(a), axes(a, "dims"))}; }},
    {"transpose", "input dim0 dim1", Sums::no,
     [](A a) -> Results { return {transpose(x(a), a.integer("dim0"), a.integer("dim1"))}; }},
    {"unsqueeze", "input dim", Sums::no,
     [](A a) -> Results { return {unsqueeze(x(a), a.integer("dim"))}; }},
    {"squeeze", "input dim", Sums::no,
     [](A a) -> Results { return {squeeze(x(a), a.integer("dim"))}; }},
    {"expand", "input *shape", Sums::no,
     [](A a) -> Results { return {expand(x(a), shape(a, "shape"))}; }},
    {"broadcast_to", "input *shape", Sums::no,
     [](A a) -> Results { return {broadcast_to(x(a), shape(a, "shape"))}; }},
    {"slice", "input dim start end step", Sums::no,
     [](A a) -> Results {
       return {slice(x(a), chosen_axis(a), a.integer("start", 0), a.integer("end", kEnd),
                     a.integer("step", 1))};
     }},
    {"narrow", "input dim start length", Sums::no,
     [](A a) -> Results {
       if (!a.is<std::int64_t>("start")) throw Refused("argument 'start' is not an integer");
       return {narrow(x(a), a.integer("dim"), a.integer("start"), a.integer("length"))};
     }},
    {"select", "input dim index", Sums::no,
     [](A a) -> Results { return {select(x(a), a.integer("dim"), a.integer("index"))}; }},
    {"split", "input sizes dim", Sums::no, pieces},
    {"split/list_args", "input sizes dim", Sums::no, pieces},
    {"split_with_sizes", "input sizes dim", Sums::no, pieces},
    {"cat", "tensors dim", Sums::no,
     [](A a) -> Results { return {cat(a.tensors("tensors"), chosen_axis(a))}; }},
    {"stack", "tensors dim", Sums::no,
     [](A a) -> Results { return {stack(a.tensors("tensors"), chosen_axis(a))}; }},

    // ---- Indexing ----
    {"index_select", "input dim index", Sums::yes,
     [](A a) -> Results { return {index_select(x(a), a.integer("dim"), a.tensor("index"))}; }},
    {"gather", "input dim index sparse_grad?", Sums::yes,
     [](A a) -> Results { return {gather(x(a), a.integer("dim"), a.tensor("index"))}; }},
    // ---- Linear algebra ----
    {"matmul", "input other", Sums::yes, of_two<matmul>},
    {"__rmatmul__", "input other", Sums::yes,
     [](A a) -> Results { return {matmul(a.tensor("other"), x(a))}; }},
    {"mm", "input other", Sums::yes, of_two<matmul>},
    {"mv", "input other", Sums::yes, of_two<matmul>},
    {"nn.functional.linear", "input weight bias", Sums::yes,
     [](A a) -> Results { return {linear(x(a), a.tensor("weight"), a.tensor_or_none("bias"))}; }},

    // ---- Rows ----
    {"softmax", "input dim dtype!", Sums::yes,
     [](A a) -> Results { return {softmax(x(a), a.integer("dim"))}; }},
    {"log_softmax", "input dim dtype!", Sums::yes,
     [](A a) -> Results { return {log_softmax(x(a), a.integer("dim"))}; }},
    {"nn.functional.layer_norm", "input normalized_shape weight bias eps", Sums::yes, layer_normed},
    {"nn.functional.rms_norm", "input normalized_shape weight eps", Sums::yes, rms_normed},
    {"nn.functional.dropout", "input p training inplace?", Sums::no,
     [](A a) -> Results {
       const double p = a.number("p", 0.5);
       const bool training = a.flag("training", true);
       if (training && p != 0 && !a.timed) throw Refused("argument 'p' makes the result random");
       return {dropout(x(a), p, training)};
     }},

    // ---- Images ----
    {"nn.functional.max_pool1d",
     "input kernel_size stride padding dilation ceil_mode return_indices!", Sums::yes,
     [](A a) -> Results { return {max_pool1d(x(a), length(a, "kernel_size", 1), pooling(a))}; }},
    {"nn.functional.max_pool2d",
     "input kernel_size stride padding dilation ceil_mode return_indices!", Sums::yes,
     [](A a) -> Results { return {max_pool2d(x(a), extent(a, "kernel_size", 1), pooling(a))}; }},
    {"nn.functional.avg_pool1d", "input kernel_size stride padding ceil_mode count_include_pad",
     Sums::yes,
     [](A a) -> Results { return {avg_pool1d(x(a), length(a, "kernel_size", 1), pooling(a))}; }},
    {"nn.functional.avg_pool2d",
     "input kernel_size stride padding ceil_mode count_include_pad divisor_override!", Sums::yes,
     [](A a) -> Results { return {avg_pool2d(x(a), extent(a, "kernel_size", 1), pooling(a))}; }},
    {"nn.functional.adaptive_max_pool2d", "input output_size return_indices!", Sums::yes,
     [](A a) -> Results { return {adaptive_max_pool2d(x(a), adaptive_size(a))}; }},
    {"nn.functional.adaptive_avg_pool2d", "input output_size", Sums::yes,
     [](A a) -> Results { return {adaptive_avg_pool2d(x(a), adaptive_size(a))}; }},

    // ---- Norms by channel ----
    {"nn.functional.batch_norm",
     "input running_mean running_var weight bias training momentum? eps", Sums::yes, batch_normed},
    {"nn.functional.group_norm", "input num_groups weight bias eps", Sums::yes,
     [](A a) -> Results {
       return {group_norm(x(a), a.integer("num_groups"), a.tensor_or_none("weight"),
                          a.tensor_or_none("bias"), a.number("eps", 1e-5))};
     }},
    {"nn.functional.instance_norm",
     "input running_mean? running_var? weight bias use_input_stats momentum? eps", Sums::yes,
     [](A a) -> Results {
       if (!a.flag("use_input_stats", true)) throw Refused("argument 'use_input_stats' is false");
       return {instance_norm(x(a), a.tensor_or_none("weight"), a.tensor_or_none("bias"),
                             a.number("eps", 1e-5))};
     }},
};

}  // namespace

const std::vector<Entry>& table() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> entries = kOperations;
    for (const auto& others :
         {elementwise_entries(), loss_entries(), order_entries(), position_entries(),
          image_entries(), layer_entries(), product_entries(), linalg_entries(),
          transformer_entries(), index_entries(), derived_entries()})
      entries.insert(entries.end(), others.begin(), others.end());
    return entries;
  }();
  return all;
}

const Entry* find(const std::string& name) {
  const auto it =
      std::find_if(table().begin(), table().end(), [&](const Entry& e) { return name == e.name; });
  return it == table().end() ? nullptr : &*it;
}

}  // namespace firn::interop
