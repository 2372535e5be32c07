// Rules of views, joins, and operations that read at given positions.
#include <array>
#include <limits>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "onnx/rules.h"

namespace firn::io::onnx {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

NodeAttribute axis(Emit& e) { return {"axis", e.integer("axis")}; }

void reshape(Emit& e) { e.done(e.reshape(e.raw(), e.result().shape)); }

/// Returns x repeated to a shape. Unchanged axes have size 1 in it, because Expand broadcasts both
/// ways.
std::string expanded(Emit& e, const std::string& x, const Sizes& from, const Sizes& to) {
  Sizes shape = to;
  const std::size_t lead = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i] == to[lead + i]) shape[lead + i] = {1, 0};
  return e("Expand", {x, e.graph.shape(shape)});
}

void slice(Emit& e) {
  const auto at = static_cast<std::size_t>(e.integer("axis"));
  const Size size = e.value().shape[at];
  Size first = e.any("first"), last = e.any("last");
  if (first.is_fixed() && last.is_fixed() && last.fixed < first.fixed) last = first;
  // A slice to the end of an axis gets kEnd, which is valid for any size of a growing axis.
  const std::string end = last == size ? e.graph.list({kEnd}) : e.graph.size(last);
  e.done(e("Slice", {e.raw(), e.graph.size(first), end, e.graph.list({e.integer("axis")}),
                     e.graph.list({e.integer("step")})}));
}

void select(Emit& e) {
  const Size index = e.any("index");
  const std::string at = index.is_fixed() ? e.graph.scalar(i64, static_cast<double>(index.fixed))
                                          : e.squeeze(e.graph.size(index), {0});
  e.done(e("Gather", {e.raw(), at}, {axis(e)}));
}

void join(Emit& e) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < e.count(); ++i) parts.push_back(e.raw(i));
  e.done(e("Concat", parts, {axis(e)}));
}

void pad(Emit& e) {
  std::vector<std::int64_t> pads = e.integers("before");
  const std::vector<std::int64_t> after = e.integers("after");
  pads.insert(pads.end(), after.begin(), after.end());
  e.done(e("Pad", {e.in(), e.graph.list(pads), e.constant(e.number("value"))},
           {{"mode", std::string("constant")}}));
}

/// Writes a copy to a whole tensor, cast and repeated.
void copy(Emit& e) {
  std::string x = e.raw();
  if (e.value().dtype != e.result().dtype) x = e.cast(x, e.result().dtype);
  if (e.value().shape != e.result().shape) x = expanded(e, x, e.value().shape, e.result().shape);
  e.done(x, e.result().dtype);
}
void fill(Emit& e) {
  const std::string x = e.graph.scalar(e.result().dtype, e.number("value"));
  e.done(expanded(e, x, {}, e.result().shape), e.result().dtype);
}

void one_hot(Emit& e) {
  // Compares the index, with one more axis, with 0, 1, ...
  const std::int64_t rank = static_cast<std::int64_t>(e.tensor_value("index").shape.size());
  const std::string index = e.unsqueeze(e.cast(e.tensor("index"), i64), {rank});
  const std::string classes =
      e.graph.initializer("classes", arange(e.integer("classes"), i64, Device::cpu()));
  e.done(e("Equal", {index, classes}), boolean);
}

void gather(Emit& e) { e.done(e("GatherElements", {e.raw(), e.tensor("index")}, {axis(e)})); }
void scatter_add(Emit& e) {
  e.done(e("ScatterElements", {e.in(0), e.tensor("index"), e.in(1)},
           {axis(e), {"reduction", std::string("add")}}));
}
/// Requires that all positions differ.
void put(Emit& e) {
  e.done(e("ScatterElements", {e.raw(0), e.tensor("index"), e.raw(1)}, {axis(e)}));
}

/// Moves both axes to the end, merges them, and takes every (m + 1)-th element.
void diagonal(Emit& e) {
  const std::int64_t a = e.integer("first"), b = e.integer("second"), offset = e.integer("offset");
  const std::int64_t n = e.size(a), m = e.size(b);
  std::vector<std::int64_t> order, positions;
  Sizes merged;
  for (std::int64_t i = 0; i < e.rank(); ++i) {
    if (i == a || i == b) continue;
    order.push_back(i);
    merged.push_back(e.value().shape[static_cast<std::size_t>(i)]);
  }
  order.insert(order.end(), {a, b});
  merged.push_back({n * m});
  for (std::int64_t i = 0; i < n; ++i)
    if (i + offset >= 0 && i + offset < m) positions.push_back(i * m + i + offset);
  const std::string rows = e.reshape(e("Transpose", {e.raw()}, {{"perm", order}}), merged);
  e.done(e("Gather", {rows, e.graph.list(positions)}, {{"axis", std::int64_t{e.rank() - 2}}}));
}

/// Writes TopK along an axis; equal elements are in the order of their positions, as in firn.
void top(Emit& e, bool values) {
  const auto at = static_cast<std::size_t>(e.integer("axis"));
  const std::vector<std::string> y =
      e.graph.node("TopK", {e.in(), e.graph.size(e.result().shape[at])},
                   {axis(e), {"largest", e.integer("largest")}, {"sorted", std::int64_t{1}}}, 2);
  if (values) {
    e.done(y[0]);
    e.also(y[1]);
  } else {
    e.done(y[1], i64);
  }
}
void sort(Emit& e) { top(e, true); }

const std::array kRules = {
    Rule{"reshape", Width::same, reshape},
    Rule{"permute", Width::same,
         [](Emit& e) {
           e.done(e("Transpose", {e.raw()}, {{"perm", e.integers("order")}}));
         }},
    Rule{"expand", Width::same,
         [](Emit& e) { e.done(expanded(e, e.raw(), e.value().shape, e.result().shape)); }},
    Rule{"slice", Width::same, slice},
    Rule{"select", Width::same, select},
    Rule{"cat", Width::same, join},
    Rule{"stack", Width::same, join},
    Rule{"pad", Width::both, pad},
    Rule{"copy_", Width::same, copy},
    Rule{"fill_", Width::same, fill},
    Rule{"zero_", Width::same, fill},
    Rule{"embedding", Width::same,
         [](Emit& e) {
           e.done(e("Gather", {e.raw(), e.tensor("index")}, {{"axis", std::int64_t{0}}}));
         }},
    Rule{"index_select", Width::same,
         [](Emit& e) {
           e.done(e("Gather", {e.raw(), e.tensor("index")}, {axis(e)}));
         }},
    Rule{"gather", Width::same, gather},
    Rule{"take_along", Width::same, gather},
    Rule{"take", Width::same, gather},
    Rule{"masked_scatter", Width::same, gather},
    Rule{"scatter_add", Width::wide, scatter_add},
    Rule{"index_add", Width::wide, scatter_add},
    Rule{"select_scatter", Width::same, put},
    Rule{"slice_scatter", Width::same, put},
    Rule{"diagonal_scatter", Width::same, put},
    Rule{"diagonal", Width::same, diagonal},
    Rule{"one_hot", Width::same, one_hot},
    Rule{"sort", Width::whole, sort},
    Rule{"topk", Width::whole, sort},
    Rule{"argsort", Width::whole, [](Emit& e) { top(e, false); }},
};

}  // namespace

std::span<const Rule> shape_rules() { return kRules; }

}  // namespace firn::io::onnx
