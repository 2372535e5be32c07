// Rearrangements, adding at positions, samples, and losses by terms.
#include <algorithm>
#include <stdexcept>

#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

Results rearranged(Draw& d) {
  const Tensor x = d.chance(80) ? d.small() : d.any();
  switch (d.below(19)) {
    case 0: {
      d.say(" narrow");
      const std::int64_t axis = d.axis(x), start = d.number("start", -6, 6);
      return {narrow(x, axis, start, d.number("length", 0, 6))};
    }
    case 1: {
      d.say(" chunk");
      const std::int64_t chunks = d.number("chunks", 1, 6);
      return chunk(x, chunks, d.axis(x));
    }
    case 2: {
      d.say(" movedim");
      const std::int64_t from = d.axis(x);
      return {movedim(x, from, d.axis(x))};
    }
    case 3: {
      d.say(" diagonal");
      const std::int64_t offset = d.number("offset", -4, 4), first = d.axis(x);
      return {diagonal(x, offset, first, d.axis(x))};
    }
    case 4: {
      d.say(" meshgrid");
      const Tensor a = d.small(), b = d.small();
      return meshgrid({a, b});
    }
    case 5:
      d.say(" flip");
      return {flip(x, d.axes(x))};
    case 6: {
      d.say(" roll");
      const std::int64_t shift = d.number("shift", -9, 9);
      return {d.chance(70) ? roll(x, shift, d.axis(x)) : roll(x, shift)};
    }
    case 7: {
      d.say(" rot90");
      const std::int64_t times = d.number("times", -5, 5), first = d.axis(x);
      return {rot90(x, times, first, d.axis(x))};
    }
    case 8: {
      d.say(" repeat");
      const Dims counts = d.numbers("counts", static_cast<int>(d.below(6)), 0, 3);
      return {d.chance(50) ? repeat(x, counts) : tile(x, counts)};
    }
    case 9: {
      d.say(" repeat_interleave");
      const std::int64_t count = d.number("count", 0, 3);
      return {repeat_interleave(x, count, d.axis(x))};
    }
    case 10: {
      d.say(" repeat_interleave");
      const std::vector<std::int64_t> counts = {d.number("a", 0, 3), d.number("b", 0, 3)};
      return {repeat_interleave(x, counts, d.axis(x))};
    }
    case 11: {
      const bool lower = d.flag("lower");
      const std::int64_t border = d.number("diagonal", -4, 4);
      return {lower ? tril(x, border) : triu(x, border)};
    }
    case 12:
      d.say(" diag");
      return {diag(x, d.number("offset", -4, 4))};
    case 13: {
      d.say(" pad");
      const Dims before = d.numbers("before", x.rank(), -1, 4),
                 after = d.numbers("after", x.rank(), -1, 4);
      return {pad(
          x, before, after,
          d.one_of({PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular}))};
    }
    case 14: {
      d.say(" pixel_shuffle");
      const std::int64_t r = d.number("r", -1, 3);
      return {d.chance(50) ? pixel_shuffle(x, r) : pixel_unshuffle(x, r)};
    }
    case 15:
      d.say(" channel_shuffle");
      return {channel_shuffle(x, d.number("groups", -1, 3))};
    case 16: {
      d.say(" distance");
      const Tensor a = d.floating(0, 4), b = d.of(a.shape(), a.dtype());
      if (d.chance(50)) return {cosine_similarity(a, b, d.axis(a), d.real("eps"))};
      return {pairwise_distance(a, b, {.p = d.real("p"), .keepdims = d.flag("keepdims")})};
    }
    case 17: {
      d.say(" broadcast_to");
      return {broadcast_to(x, d.numbers("shape", static_cast<int>(d.below(6)), 0, 4))};
    }
    default: {
      d.say(" linspace");
      const double start = d.real("start"), end = d.real("end");
      const std::int64_t count = d.number("count", 0, 20);
      return {linspace(start, end, count, {.dtype = d.dtype("dtype")})};
    }
  }
}

Results placed(Draw& d) {
  const Tensor x = d.floating(0, 4);
  switch (d.below(8)) {
    case 5: {
      d.say(" embedding");
      const Tensor index = d.index({3, 2}, 4);
      return {embedding(x, index, d.number("padding", -4, 4))};
    }
    case 6: {
      d.say(" embedding_bag");
      const bool rows = d.flag("rows");
      EmbeddingBagOptions options{.mode = d.one_of({BagMode::sum, BagMode::mean, BagMode::max})};
      if (!rows) options.offsets = d.index({3}, 5);
      options.include_last_offset = d.flag("last");
      if (d.chance(50)) options.padding_idx = d.number("padding", -4, 4);
      const Shape shape = rows ? Shape{2, 3} : Shape{5};
      if (d.chance(30)) options.per_sample_weights = d.of(shape, x.dtype());
      return {embedding_bag(d.chance(80) ? d.of({4, 2}, f32) : x, d.index(shape, 4), options)};
    }
    case 0: {
      d.say(" scatter_add");
      const std::int64_t axis = d.axis(x);
      const Tensor index = d.index(x.shape(), 5), src = d.of(x.shape(), x.dtype());
      return {scatter_add(x, axis, index, src)};
    }
    case 1: {
      d.say(" index_add");
      const std::int64_t axis = d.axis(x);
      const Tensor index = d.index({3}, 5), src = d.of(x.shape(), x.dtype());
      return {index_add(x, axis, index, src, d.real("alpha"))};
    }
    case 2: {
      d.say(" take_along");
      const std::int64_t axis = d.axis(x);
      return {take_along(x, d.index(x.shape(), 5), axis)};
    }
    case 3: {
      d.say(" kthvalue");
      const std::int64_t k = d.number("k", 1, 4);
      const Sorted found = kthvalue(x, k, d.axis(x), d.flag("keepdims"));
      return {found.values, found.indices};
    }
    case 4:
      d.say(" nonzero");
      return {nonzero(d.small())};
    default:
      d.say(" masked_select");
      return {masked_select(x, d.of(x.shape(), boolean))};
  }
}

Results written(Draw& d) {
  const Tensor x = d.chance(80) ? d.floating(0, 4) : d.small();
  const auto how = d.one_of({ScatterReduce::sum, ScatterReduce::prod, ScatterReduce::mean,
                             ScatterReduce::amax, ScatterReduce::amin});
  const std::int64_t most = d.chance(80) ? 1 : 5;  // mostly on the axis
  switch (d.below(12)) {
    case 0: {
      d.say(" scatter");
      const std::int64_t axis = d.axis(x);
      return {scatter(x, axis, d.index(x.shape(), most), d.of(x.shape(), x.dtype()))};
    }
    case 1: {
      d.say(" scatter of a number");
      const std::int64_t axis = d.axis(x);
      const Tensor index = d.index(x.shape(), most);
      return {scatter(x, axis, index, d.real("value"))};
    }
    case 2: {
      d.say(" scatter_reduce");
      const std::int64_t axis = d.axis(x);
      const Tensor index = d.index(x.shape(), most), src = d.of(x.shape(), x.dtype());
      return {scatter_reduce(x, axis, index, src, how, d.flag("self"))};
    }
    case 3: {
      d.say(" index_copy");
      const std::int64_t axis = d.axis(x);
      return {index_copy(x, axis, d.index({3}, most), d.of(x.shape(), x.dtype()))};
    }
    case 4: {
      d.say(" index_fill");
      const std::int64_t axis = d.axis(x);
      const Tensor index = d.index({3}, most);
      return {index_fill(x, axis, index, d.real("value"))};
    }
    case 5: {
      d.say(" index_reduce");
      const std::int64_t axis = d.axis(x);
      const Tensor index = d.index({3}, most), src = d.of(x.shape(), x.dtype());
      return {index_reduce(x, axis, index, src, how, d.flag("self"))};
    }
    case 6: {
      d.say(" index_put");
      std::vector<Tensor> indices;
      for (std::int64_t i = d.below(3); i >= 0; --i)
        indices.push_back(d.chance(70) ? d.index({3}, most) : Tensor());
      if (d.chance(20)) indices = {d.of(x.shape(), boolean)};
      const Tensor values = d.of(d.chance(50) ? Shape{} : d.small_shape(0, 3), x.dtype());
      return {index_put(x, indices, values, d.flag("accumulate"))};
    }
    case 7: {
      d.say(" put");
      const Tensor index = d.index({4}, most), src = d.of({4}, x.dtype());
      return {put(x, index, src, d.flag("accumulate"))};
    }
    case 8:
      d.say(" take");
      return {take(x, d.index({2, 3}, most))};
    case 9: {
      d.say(" masked_scatter");
      const Tensor mask = d.of(x.shape(), boolean);
      return {masked_scatter(x, mask, d.of(d.small_shape(0, 3), x.dtype()))};
    }
    case 10: {
      d.say(" searchsorted");
      const Tensor values = d.of(d.small_shape(0, 3), x.dtype());
      if (d.chance(50)) return {bucketize(values, x, d.flag("right"))};
      return {searchsorted(x, values, d.flag("right"))};
    }
    default: {
      d.say(" select_scatter");
      const std::int64_t axis = d.axis(x), at = d.number("at", -3, 3);
      if (d.chance(30)) return {diagonal_scatter(x, d.of({2}, x.dtype()), at)};
      if (d.chance(50)) {
        const std::int64_t stop = d.number("stop", -3, 3), step = d.number("step", 1, 3);
        return {slice_scatter(x, d.of(x.shape(), x.dtype()), axis, at, stop, step)};
      }
      return {select_scatter(x, d.of({2}, x.dtype()), axis, at)};
    }
  }
}

Results derived(Draw& d) {
  const Tensor x = d.chance(80) ? d.floating(0, 4) : d.small();
  switch (d.below(9)) {
    case 0: {
      d.say(" stack");
      const Tensor y = d.of(x.shape(), x.dtype());
      return {hstack({x, y}), vstack({x, y}), dstack({x, y}), column_stack({x, y})};
    }
    case 1:
      d.say(" unbind");
      return unbind(x, d.axis(x));
    case 2: {
      d.say(" tensor_split");
      const std::int64_t pieces = d.number("pieces", 1, 6);
      return tensor_split(x, std::min<std::int64_t>(pieces, 99), d.axis(x));
    }
    case 3: {
      d.say(" unflatten");
      const std::int64_t axis = d.axis(x);
      return {unflatten(x, axis, d.numbers("sizes", 2, -1, 4))};
    }
    case 4: {
      d.say(" diag_embed");
      const std::int64_t offset = d.number("offset", -3, 3);
      return {diag_embed(x, offset, d.number("first", -2, 1), d.number("second", -2, 2))};
    }
    case 5: {
      d.say(" diff");
      const std::int64_t times = d.number("times", 0, 3);
      return {diff(x, times, d.axis(x))};
    }
    case 6:
      d.say(" nansum");
      return {nansum(x, d.axes(x)), nanmean(x, d.axes(x))};
    case 7: {
      d.say(" trapezoid");
      const double step = d.real("step");
      const Tensor matrix = d.of({2, 3}, x.dtype());
      return {trapezoid(x, step, d.axis(x)), cov(matrix), corrcoef(matrix), trace(matrix)};
    }
    default: {
      d.say(" isclose");
      const Tensor y = d.of(x.shape(), x.dtype());
      const bool same = equal(x, y) && !allclose(x, y);
      if (same) throw std::logic_error("equal tensors are not close");
      const Tensor square = d.of({2, 2}, x.dtype());
      return {isclose(x, y, {.rtol = d.real("rtol"), .atol = d.real("atol")}),
              kron(square, square)};
    }
  }
}

Results sampled(Draw& d) {
  const Tensor x = d.floating(0, 4);
  switch (d.below(5)) {
    case 0: {
      d.say(" randint");
      const std::int64_t low = d.number("low", -9, 9), high = d.number("high", -9, 99);
      return {randint(low, high, {3, 2}, {.dtype = d.dtype("dtype")})};
    }
    case 1:
      d.say(" bernoulli");
      return {bernoulli(x)};
    case 2:
      d.say(" categorical");
      return {categorical(x)};
    case 3: {
      d.say(" multinomial");
      const std::int64_t count = d.number("count", 0, 4);
      return {multinomial(x, count, d.flag("replacement"))};
    }
    default: {
      d.say(" gumbel_softmax");
      const double temperature = d.real("temperature");
      const bool hard = d.flag("hard");
      return {gumbel_softmax(x, {.temperature = temperature, .hard = hard, .axis = d.axis(x)})};
    }
  }
}

Results of_loss(const LossTerms& terms, Draw& d) {
  const Loss loss =
      d.chance(50)
          ? terms.loss()
          : terms.loss(d.of(terms.terms.shape(), d.chance(50) ? boolean : terms.terms.dtype()));
  return {terms.terms, loss.sum, loss.weight};
}

Results by_terms(Draw& d) {
  const Tensor x = d.floating(0, 4), y = d.of(x.shape(), x.dtype());
  switch (d.below(12)) {
    case 0:
      return of_loss(smooth_l1_terms(x, y, d.real("beta")), d);
    case 1:
      return of_loss(bce_terms(x, y), d);
    case 2:
      return of_loss(bce_with_logits_terms(x, y, {.pos_weight = d.maybe(y)}), d);
    case 3:
      return of_loss(focal_terms(x, y, {.gamma = d.real("gamma")}), d);
    case 4:
      return of_loss(hinge_embedding_terms(x, y, d.real("margin")), d);
    case 5:
      return of_loss(margin_ranking_terms(x, y, d.of(x.shape(), x.dtype()), d.real("margin")), d);
    case 6:
      return of_loss(poisson_nll_terms(x, y, {.log_input = d.flag("log"), .full = true}), d);
    case 7:
      return of_loss(gaussian_nll_terms(x, y, d.of(x.shape(), x.dtype())), d);
    case 8: {
      Shape rows = x.shape();
      if (!rows.empty()) rows.erase(rows.size() - 1);
      return of_loss(cosine_embedding_terms(x, y, d.of(rows, x.dtype()), d.real("margin")), d);
    }
    case 9: {
      const double p = d.real("p");
      return of_loss(
          triplet_margin_terms(x, y, d.of(x.shape(), x.dtype()), {.p = p, .swap = d.flag("swap")}),
          d);
    }
    case 10:
      return of_loss(dice_terms(x, y, d.real("smooth")), d);
    default: {
      Shape rows = x.shape();
      if (!rows.empty()) rows.erase(rows.size() - 1);
      const bool classes = d.chance(50);
      const double smoothing = d.chance(50) ? 0.1 : d.real("smoothing");
      return of_loss(cross_entropy_terms(x, classes ? d.index(rows, 4) : y,
                                         {.label_smoothing = smoothing,
                                          .axis = d.axis(x),
                                          .row_weights = d.maybe(d.of(rows, x.dtype()))}),
                     d);
    }
  }
}

}  // namespace

std::vector<Call> rearrange_calls() {
  return {{"rearrange", rearranged}, {"rearrange", rearranged}, {"rearrange", rearranged},
          {"place", placed},         {"place", placed},         {"write", written},
          {"write", written},        {"derive", derived},       {"sample", sampled},
          {"terms", by_terms},       {"terms", by_terms}};
}

}  // namespace fuzz
