// Meshes, and what the ranks of a mesh compute together: differentiable exchanges and divided
// layers beside those of one rank.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dist/training.h"
#include "firn/dist/mesh.h"
#include "firn/dist/parallel/functions.h"
#include "firn/dist/parallel/layers.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::Mesh;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("mesh: each rank has its place in the groups of three directions") {
  const auto places = on_ranks<std::vector<int>>(12, [](const Group& all) {
    const Mesh mesh(all, {.dp = 2, .tp = 3, .pp = 2});
    // Each group adds up what tells its members: the numbers of all ranks.
    std::vector<int> out = {mesh.dp().rank(), mesh.tp().rank(), mesh.pp().rank(),
                            mesh.copy().rank()};
    for (const Group* g : {&mesh.dp(), &mesh.tp(), &mesh.pp(), &mesh.copy()}) {
      const Tensor members = zeros({12}, i64);
      members.data<std::int64_t>()[all.rank()] = 1 + g->rank();
      g->all_reduce(members);
      for (const std::int64_t v : members.to_vector<std::int64_t>())
        out.push_back(static_cast<int>(v));
    }
    return out;
  });
  for (int rank = 0; rank < 12; ++rank) {
    const int tp = rank % 3, dp = rank / 3 % 2, pp = rank / 6;
    std::vector<int> expected = {dp, tp, pp, pp * 3 + tp};
    const auto add = [&](auto place) {
      for (int r = 0; r < 12; ++r) expected.push_back(place(r % 3, r / 3 % 2, r / 6));
    };
    add([&](int t, int d, int p) { return t == tp && p == pp ? 1 + d : 0; });
    add([&](int t, int d, int p) { return d == dp && p == pp ? 1 + t : 0; });
    add([&](int t, int d, int p) { return t == tp && d == dp ? 1 + p : 0; });
    add([&](int t, int d, int p) { return d == dp ? 1 + p * 3 + t : 0; });
    CHECK(places[static_cast<std::size_t>(rank)] == expected);
  }
  const Mesh one{Group()};
  CHECK(one.dp().size() * one.tp().size() * one.pp().size() == 1);
}

TEST_CASE("mesh: sizes that do not fit are an error on every rank, with the numbers") {
  for (const std::string& e :
       errors_on_ranks(4, [](const Group& all) { Mesh(all, {.dp = 2, .tp = 3}); }))
    CHECK(has(e, "dp = 2 times tp = 3 times pp = 1 is 6, and the group has 4 ranks"));
  for (const std::string& e : errors_on_ranks(2, [](const Group& all) { Mesh(all, {.tp = -2}); }))
    CHECK(has(e, "dp = 1, tp = -2 and pp = 1 must be positive"));
  for (const std::string& e : errors_on_ranks(4, [](const Group& all) {
         Mesh(all, {.dp = all.rank() < 2 ? 2 : 1, .tp = all.rank() < 2 ? 2 : 4});
       }))
    CHECK(has(e, "rank 1 gave dp = 2, tp = 2, pp = 1, and rank 2 gave 1, 4, 1"));
}

// ---- Exchanges with a gradient ----

/// Numbers that are the same on every rank.
Tensor numbers(const Shape& shape, std::uint64_t seed, DType dtype = f64) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  return make(Rng(seed).uniforms(count, -1, 1), shape, dtype);
}

/// The relative distance of two tensors of one shape.
double distance(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return HUGE_VAL;
  return relative_distance(values_of(a), values_of(b));
}

TEST_CASE("parallel: exchanges and their gradients are those of plain sums and slices") {
  const int ranks = 3;
  // What rank r has of the operand, and of the gradient that comes back.
  const auto part = [](int r, const Shape& shape, std::uint64_t seed) {
    return numbers(shape, seed + static_cast<std::uint64_t>(r));
  };
  const auto sum = [&](const Shape& shape, std::uint64_t seed) {
    Tensor all = part(0, shape, seed).clone();
    for (int r = 1; r < ranks; ++r) all = all + part(r, shape, seed);
    return all;
  };
  const auto wrong = on_ranks<std::string>(ranks, [&](const Group& g) {
    std::string out;
    const auto expect = [&](bool ok, const char* what) {
      if (!ok) out += std::string(what) + "; ";
    };
    const auto equal = [](const Tensor& a, const Tensor& b) {
      return a.shape() == b.shape() && values_of(a) == values_of(b);
    };
    const auto gradient = [](const Tensor& x, const Tensor& y, const Tensor& seed) {
      backward(y, {.initial_gradient = seed});
      return x.grad();
    };
    const Shape shape = {2, 6};
    {
      const Tensor x = numbers(shape, 1).set_requires_grad(), y = dist::copy_to_ranks(x, g);
      expect(equal(y, x), "copy");
      expect(equal(gradient(x, y, part(g.rank(), shape, 10)), sum(shape, 10)), "copy's gradient");
    }
    {
      const Tensor x = part(g.rank(), shape, 20).set_requires_grad();
      const Tensor y = dist::reduce_from_ranks(x, g), seed = numbers(shape, 2);
      expect(equal(y, sum(shape, 20)), "reduce");
      expect(equal(gradient(x, y, seed), seed), "reduce's gradient");
      expect(equal(x, part(g.rank(), shape, 20)), "reduce's operand");
    }
    {
      const Tensor x = part(g.rank(), shape, 30).set_requires_grad();
      const Tensor y = dist::gather_from_ranks(x, g), seed = numbers({2, 18}, 3);
      std::vector<Tensor> parts;
      for (int r = 0; r < ranks; ++r) parts.push_back(part(r, shape, 30));
      expect(equal(y, cat(parts, 1)), "gather");
      const Tensor own = seed.slice(1, 6 * g.rank(), 6 * g.rank() + 6);
      expect(equal(gradient(x, y, seed), own), "gather's gradient");
    }
    {
      const Tensor x = numbers(shape, 4).set_requires_grad(), y = dist::scatter_to_ranks(x, g);
      expect(equal(y, x.slice(1, 2 * g.rank(), 2 * g.rank() + 2)), "scatter");
      std::vector<Tensor> parts;
      for (int r = 0; r < ranks; ++r) parts.push_back(part(r, {2, 2}, 40));
      expect(equal(gradient(x, y, part(g.rank(), {2, 2}, 40)), cat(parts, 1)),
             "scatter's gradient");
    }
    // f16 is added in f32, in which 2048 + 1 + 1 is not 2048, and rounded once.
    const float given[] = {2048, 1, 1};
    const Tensor x = full({3}, given[g.rank()], f16);
    expect(values_of(dist::reduce_from_ranks(x, g)) == std::vector<double>(3, 2050), "f16");
    return out;
  });
  for (const std::string& w : wrong) CHECK(w.empty());
}

TEST_CASE("parallel: exchanges refuse what they cannot divide") {
  for (const std::string& e : errors_on_ranks(2, [](const Group& g) {
         dist::scatter_to_ranks(ones({2, 5}), g);
       }))
    CHECK(has(e, "the last axis of [2, 5] f32 cpu cannot be divided by 2 ranks"));
  CHECK_THROWS_AS(dist::copy_to_ranks(ones({2}, i64), Group()), Error);
  CHECK_THROWS_AS(dist::gather_from_ranks(ones({}), Group()), Error);
  CHECK_THROWS_AS(dist::reduce_from_ranks({}, Group()), Error);
}

// ---- Layers beside those of one rank ----

/// What a parameter is of the whole one, on a rank.
enum class Of { rows, columns, all };

/// Makes a layer and its divided form by the same numbers, and compares results, gradients of the
/// input and gradients of all parameters: "" if they agree within `bound`.
template <class Whole, class Part>
std::string differ(const Group& g, Whole whole, Part part, const Tensor& x,
                   const std::vector<Of>& kinds, double bound) {
  std::string out;
  const auto expect = [&](const Tensor& got, const Tensor& wanted, const std::string& what) {
    const double d = distance(got, wanted);
    if (!(d <= bound)) out += what + ": " + std::to_string(d) + "; ";
  };
  Tensor a = x.clone(), b = x.clone();
  if (is_floating(x.dtype())) {
    a.set_requires_grad();
    b.set_requires_grad();
  }
  const Tensor y = whole(a), z = part(b);
  expect(z, y, "result");
  const Tensor seed = numbers(y.shape(), 77, y.dtype());
  backward(y, {.initial_gradient = seed});
  backward(z, {.initial_gradient = seed});
  if (is_floating(x.dtype())) expect(b.grad(), a.grad(), "gradient of the input");
  const auto of_whole = whole.named_parameters(), of_part = part.named_parameters();
  if (of_whole.size() != kinds.size() || of_part.size() != kinds.size())
    return out + "another number of parameters";
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const Tensor &w = of_whole[i].tensor, &p = of_part[i].tensor;
    const auto own = [&](const Tensor& t) {
      if (kinds[i] == Of::all) return t;
      const int axis = kinds[i] == Of::rows ? 0 : 1;
      const std::int64_t n = t.size(axis) / g.size();
      return t.slice(axis, n * g.rank(), n * (g.rank() + 1));
    };
    if (values_of(own(w)) != values_of(p)) out += of_whole[i].name + " begins otherwise; ";
    expect(p.grad(), own(w.grad()), "gradient of " + of_whole[i].name);
    if (dist::is_sharded(p) != (kinds[i] != Of::all && g.size() > 1))
      out += of_part[i].name + " marked wrongly; ";
  }
  return out;
}

TEST_CASE("parallel: layers are those of one rank, and so are their gradients") {
  const auto seeded = [](auto make_layer) {
    manual_seed(5);
    return make_layer();
  };
  for (const int ranks : {1, 2, 4})
    for (const auto& [dtype, bound] : {std::pair(f64, 1e-14), std::pair(f32, 1e-6)}) {
      CAPTURE(ranks, dtype);
      const DType t = dtype;
      const double most = bound;
      const auto wrong = on_ranks<std::string>(ranks, [&](const Group& g) {
        using namespace dist;
        const Tensor x = numbers({3, 5, 8}, 9, t);
        std::string out;
        for (const bool bias : {true, false}) {
          const std::vector<Of> column =
              bias ? std::vector{Of::rows, Of::rows} : std::vector{Of::rows};
          const std::vector<Of> row =
              bias ? std::vector{Of::columns, Of::all} : std::vector{Of::columns};
          const auto linear = seeded([&] { return nn::Linear(8, 12, {.bias = bias, .dtype = t}); });
          out += differ(g, nn::clone(linear), seeded([&] {
                          return ColumnParallelLinear(
                              g, 8, 12, {.bias = bias, .gather_output = true, .dtype = t});
                        }),
                        x, column, most);
          out += differ(g, nn::clone(linear), seeded([&] {
                          return RowParallelLinear(
                              g, 8, 12, {.bias = bias, .input_is_parallel = false, .dtype = t});
                        }),
                        x, row, most);
          const auto swiglu = [&](auto... group) {
            return [=] {
              using Layer = std::conditional_t<sizeof...(group) == 0, nn::SwiGLU, ParallelSwiGLU>;
              return Layer(group..., 8, 12, {.bias = bias, .dtype = t});
            };
          };
          std::vector<Of> kinds;
          for (int i = 0; i < 2; ++i) kinds.insert(kinds.end(), column.begin(), column.end());
          kinds.insert(kinds.end(), row.begin(), row.end());
          out += differ(g, seeded(swiglu()), seeded(swiglu(g)), x, kinds, most);
        }
        const Tensor ids = tensor(std::vector<std::int64_t>{0, 7, 3, 3, 4, 1}, {2, 3});
        out +=
            differ(g, seeded([&] { return nn::Embedding(8, 6, {.dtype = t}); }),
                   seeded([&] { return VocabParallelEmbedding(g, 8, 6, t); }), ids, {Of::rows}, 0);
        return out;
      });
      for (const std::string& w : wrong) CHECK(w.empty());
    }
}

TEST_CASE("parallel: attention divides its heads, those of keys too") {
  struct Case {
    nn::MultiHeadAttentionOptions options;
    int ranks;
    Shape bias = {};  // of the scores
  };
  const Case cases[] = {{{.causal = true, .rope_theta = 100.0, .dtype = f64}, 4},
                        {{.key_heads = 2, .head_width = 6, .bias = false, .dtype = f64}, 2},
                        {{.key_heads = 2, .memory_width = 10, .dtype = f64}, 2},
                        {{.causal = true, .dtype = f64}, 4, {4, 5, 5}},
                        {{.key_heads = 2, .memory_width = 10, .dtype = f64}, 2, {2, 1, 5, 7}}};
  for (const Case& c : cases) {
    const auto wrong = on_ranks<std::string>(c.ranks, [&](const Group& g) {
      std::string out;
      manual_seed(6);
      nn::MultiHeadAttention whole(16, 4, c.options);
      manual_seed(6);
      dist::ParallelMultiHeadAttention part(g, 16, 4, c.options);
      const auto after = default_generator().get().offset;
      manual_seed(6);
      nn::MultiHeadAttention(16, 4, c.options);
      if (default_generator().get().offset != after) out += "another place in the stream; ";
      Tensor a = numbers({2, 5, 16}, 3), b = a.clone();
      a.set_requires_grad();
      b.set_requires_grad();
      const Tensor memory = numbers({2, 7, 10}, 4);
      const bool crosses = c.options.memory_width > 0;
      nn::SeenKeys to_whole, to_part;
      if (c.bias.size() > 0) {
        to_whole.bias = numbers(c.bias, 8).set_requires_grad();
        to_part.bias = numbers(c.bias, 8).set_requires_grad();
        to_whole.mask = to_part.mask = ge(numbers({4, 5, crosses ? 7 : 5}, 9), -0.3);
      }
      const Tensor y = crosses ? whole(a, memory, to_whole) : whole(a, to_whole);
      const Tensor z = crosses ? part(b, memory, to_part) : part(b, to_part);
      const Tensor seed = numbers(y.shape(), 5);
      backward(y, {.initial_gradient = seed});
      backward(z, {.initial_gradient = seed});
      const auto expect = [&](const Tensor& got, const Tensor& wanted, const char* what) {
        const double d = distance(got, wanted);
        if (!(d <= 1e-13)) out += std::string(what) + ": " + std::to_string(d) + "; ";
      };
      expect(z, y, "result");
      expect(b.grad(), a.grad(), "gradient of the input");
      if (c.bias.size() > 0)
        expect(to_part.bias.grad(), to_whole.bias.grad(), "gradient of the bias");
      // The norms of all gradients: parts of all ranks, and what every rank has.
      const auto squares = [](const Tensor& t) { return square(t.grad().to(f64)).sum(); };
      Tensor sharded = zeros({}, f64), same = zeros({}, f64), wanted = zeros({}, f64);
      for (const Tensor& p : whole.parameters()) wanted = wanted + squares(p);
      for (const Tensor& p : part.parameters())
        (dist::is_sharded(p) ? sharded : same) =
            (dist::is_sharded(p) ? sharded : same) + squares(p);
      g.all_reduce(sharded);
      expect(sharded + same, wanted, "gradients");
      if (same.item() == 0 && c.options.bias) out += "the bias is divided; ";
      return out;
    });
    for (const std::string& w : wrong) CHECK(w.empty());
  }
}

TEST_CASE("parallel: linear layers of one rank have the bits of nn::Linear") {
  const auto bits = [](auto make, std::int64_t in) {
    manual_seed(3);
    auto layer = make();
    std::vector<double> out;
    for (const DType t : {f32, f16}) {
      layer.to(t);
      Tensor x = randn({40, in}).to(t).set_requires_grad();
      const Tensor y = layer(x);
      (y * y).to(f32).sum().backward();
      for (const Tensor& part : {y, x.grad(), layer.weight.grad(), layer.bias.grad()})
        for (const double v : values_of(part)) out.push_back(v);
    }
    return out;
  };
  const auto linear = bits([] { return nn::Linear(96, 48); }, 96);
  CHECK(bits([] { return dist::RowParallelLinear(Group(), 96, 48); }, 96) == linear);
  CHECK(bits([] { return dist::ColumnParallelLinear(Group(), 96, 48); }, 96) == linear);
}

TEST_CASE("parallel: what ranks cannot divide is an error that names the numbers") {
  const auto error = [](const std::function<void(const Group&)>& make_layer) {
    return errors_on_ranks(2, make_layer)[1];
  };
  using namespace dist;
  CHECK(has(error([](const Group& g) { ColumnParallelLinear(g, 4, 7); }),
            "[ColumnParallelLinear] out = 7 cannot be divided by 2 ranks"));
  CHECK(has(error([](const Group& g) { RowParallelLinear(g, 5, 8); }), "in = 5 cannot"));
  CHECK(has(error([](const Group& g) { VocabParallelEmbedding(g, 9, 8); }), "vocab = 9 cannot"));
  CHECK(
      has(error([](const Group& g) { ParallelMultiHeadAttention(g, 9, 3); }), "heads = 3 cannot"));
  CHECK(has(error([](const Group& g) { ParallelMultiHeadAttention(g, 8, 4, {.key_heads = 1}); }),
            "key_heads = 1 cannot"));
  CHECK(has(error([](const Group& g) { ParallelSwiGLU(g, 8, 5); }), "out = 5 cannot"));
  CHECK(has(error([](const Group& g) {
              VocabParallelEmbedding(g, 8, 2)(tensor(std::vector<std::int64_t>{1, 8}, {2}));
            }),
            "index 8 at position 1 is outside of [0, 8)"));
}

TEST_CASE("parallel: a mark stays when a model is cloned, converted and frozen for a while") {
  nn::Linear layer(3, 4);
  dist::mark_sharded(layer.weight);
  CHECK(dist::is_sharded(nn::clone(layer).weight));
  CHECK_FALSE(dist::is_sharded(nn::clone(layer).bias));
  layer.to(f16);
  layer.set_requires_grad(false);
  layer.set_requires_grad(true);
  CHECK(dist::is_sharded(layer.weight));
  CHECK_THROWS_AS(dist::mark_sharded({}), Error);
}

TEST_CASE(
    "parallel: dropout in divided layers draws numbers of each rank, and the stream goes on "
    "alike") {
  const auto drawn = on_ranks<std::vector<double>>(3, [](const Group& g) {
    std::vector<double> out;
    manual_seed(8);
    {
      const dist::RankNumbers numbers(g);
      for (const double v : values_of(rand({4}))) out.push_back(v);
    }
    for (const double v : values_of(rand({4}))) out.push_back(v);
    return out;
  });
  for (std::size_t r = 1; r < 3; ++r)
    for (std::size_t i = 0; i < 8; ++i) CHECK((drawn[r][i] == drawn[0][i]) == (i >= 4));
  manual_seed(8);
  {
    const dist::RankNumbers numbers{Group()};
    CHECK(values_of(rand({4})) != std::vector<double>(drawn[0].begin(), drawn[0].begin() + 4));
  }
  manual_seed(8);
  const auto plain = values_of(rand({4}));
  manual_seed(8);
  const dist::RankNumbers none{Group()};
  CHECK(values_of(rand({4})) == plain);

  // A divided attention with dropout: other masks, the same result and gradient on every rank.
  const auto results = on_ranks<std::vector<double>>(2, [](const Group& g) {
    manual_seed(9);
    dist::ParallelMultiHeadAttention attend(g, 8, 2, {.dropout = 0.5, .dtype = f64});
    Tensor x = numbers({2, 6, 8}, 1);
    x.set_requires_grad();
    const Tensor y = attend(x);
    y.sum().backward();
    std::vector<double> out = values_of(y);
    for (const double v : values_of(x.grad())) out.push_back(v);
    out.push_back(static_cast<double>(default_generator().get().offset));
    return out;
  });
  CHECK(results[0] == results[1]);
}

// ---- Cross-entropy ----

TEST_CASE("parallel: cross-entropy of divided classes is that of one rank, with every option") {
  const std::int64_t n = 7, classes = 12;
  const Tensor target = tensor(std::vector<std::int64_t>{0, 11, 5, -1, 6, 3, 9}, {7});
  const Tensor class_weights = numbers({classes}, 3, f64) + 1.5;
  const Tensor row_weights = tensor(std::vector<double>{1, 0.5, 2, 1, 0, 3, 1}, {7});
  const CrossEntropyOptions cases[] = {{.ignore_index = -1},
                                       {.ignore_index = -1, .label_smoothing = 0.1},
                                       {.ignore_index = -1, .class_weights = class_weights},
                                       {.ignore_index = -1,
                                        .label_smoothing = 0.2,
                                        .class_weights = class_weights,
                                        .row_weights = row_weights,
                                        .z_loss = 0.03}};
  for (const DType dtype : {f64, f32, f16})
    for (const CrossEntropyOptions& options : cases) {
      const double bound = dtype == f64 ? 1e-13 : dtype == f32 ? 1e-6 : 1e-3;
      const auto wrong = on_ranks<std::string>(3, [&](const Group& g) {
        std::string out;
        Tensor logits = 30.0 * numbers({n, classes}, 4, dtype);
        logits[1].fill_(dtype == f16 ? 3e4 : 1e6);  // far from 0, and all alike
        if (options.z_loss == 0 && dtype != f16) logits[6].fill_(1e30);
        logits[3].fill_(std::nan(""));  // left out: its logits are not read
        Tensor part = logits.slice(1, 4 * g.rank(), 4 * g.rank() + 4).clone();
        logits.set_requires_grad();
        part.set_requires_grad();
        const Loss whole = cross_entropy(logits, target, options);
        const Loss sharded = dist::vocab_parallel_cross_entropy(part, target, g, options);
        const auto expect = [&](const Tensor& got, const Tensor& wanted, const char* what) {
          const double d = distance(got, wanted);
          if (!(d <= bound)) out += std::string(what) + ": " + std::to_string(d) + "; ";
        };
        expect(sharded.sum, whole.sum, "sum");
        expect(sharded.weight, whole.weight, "weight");
        backward(whole.sum, {.initial_gradient = full({}, 3.0, whole.sum.dtype())});
        backward(sharded.sum, {.initial_gradient = full({}, 3.0, whole.sum.dtype())});
        expect(part.grad(), logits.grad().slice(1, 4 * g.rank(), 4 * g.rank() + 4), "gradient");
        return out;
      });
      for (const std::string& w : wrong) CHECK(w.empty());
    }
}

TEST_CASE("parallel: cross-entropy of divided classes refuses what does not fit") {
  const auto error = [](const Tensor& logits, const Tensor& target,
                        const CrossEntropyOptions& options = {}) {
    return errors_on_ranks(2, [&](const Group& g) {
      dist::vocab_parallel_cross_entropy(logits, target, g, options);
    })[0];
  };
  const Tensor logits = zeros({2, 3}), target = zeros({2}, i64);
  CHECK(has(error(logits, full({2}, 6, i64)), "target 6 of row 0 is outside of [0, 6)"));
  CHECK(has(error(logits, zeros({3}, i64)), "expected integers [2]"));
  CHECK(has(error(logits, zeros({2})), "expected integers"));
  CHECK(has(error(logits, target, {.axis = 0}), "axis = 0, and ranks shard the last axis"));
  CHECK(has(error(logits, target, {.label_smoothing = 1}), "label_smoothing = 1"));
  CHECK(has(error(logits, target, {.class_weights = ones({3})}), "expected shape [6]"));
  CHECK(has(error(logits, target, {.row_weights = ones({3})}), "row_weights"));
  CHECK(has(error(zeros({2, 3}, i64), target), "are no logits"));
}

}  // namespace
}  // namespace firn::testing
