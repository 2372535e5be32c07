// A graph neural network that finds out to which of four groups a node belongs. The node's own
// features hardly tell, but friends are mostly in one group. Messages along edges are rows taken
// with index_select() and added with index_add(): the mean over the neighbours (Hamilton et al.
// 2017, GraphSAGE).
#include <cstdio>
#include <cstdlib>

#include "firn/firn.h"

using namespace firn;

constexpr std::int64_t kNodes = 600, kGroups = 4, kFeatures = 8;

/// Edges from[e] -> to[e], and the number by which a node divides the sum of its messages.
struct Graph {
  Tensor from, to, degree;  // i64 [edges], i64 [edges], f32 [nodes, 1]

  Tensor mean_of_neighbours(const Tensor& x) const {
    const Tensor sums = index_add(zeros_like(x), 0, to, index_select(x, 0, from));
    return sums / degree;
  }
};

struct GraphLayer : nn::ModuleOf<GraphLayer> {
  nn::Linear self, neighbours;
  GraphLayer(std::int64_t in, std::int64_t out) : self(in, out), neighbours(in, out) {}
  FIRN_MEMBERS(self, neighbours)
  Tensor forward(const Tensor& x, const Graph& graph) {
    return self(x) + neighbours(graph.mean_of_neighbours(x));
  }
};

struct GraphNetwork : nn::ModuleOf<GraphNetwork> {
  GraphLayer first{kFeatures, 32}, second{32, 32}, third{32, kGroups};
  nn::Dropout dropout{0.3};
  FIRN_MEMBERS(first, second, third, dropout)
  Tensor forward(const Tensor& x, const Graph& graph) {
    const Tensor a = dropout(relu(first(x, graph)));
    return third(dropout(relu(second(a, graph))), graph);
  }
};

// Makes a random graph (a stochastic block model): 12 % of the pairs in a group are friends, and 1
// % of the others. nonzero() of the matrix of friendships lists the edges, in both directions.
static Graph friendships(const Tensor& group) {
  const Tensor same = eq(group.unsqueeze(0), group.unsqueeze(1));
  const Tensor drawn =
      triu(lt(rand({kNodes, kNodes}), where(same, 0.12, full({}, 0.01))).to(f32), 1);
  const Tensor edges = nonzero(drawn + drawn.transpose(0, 1));
  const Tensor to = edges.select(1, 1);
  const Tensor degree = bincount(to, {.min_length = kNodes}).to(f32);
  return {edges.select(1, 0), to, maximum(degree, 1.0).unsqueeze(1)};
}

int main(int argc, char** argv) {
  manual_seed(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1);
  const Tensor group = randint(0, kGroups, {kNodes});
  const Graph graph = friendships(group);
  const Tensor x = one_hot(group, kFeatures).to(f32) + 1.2 * randn({kNodes, kFeatures});
  // One node in ten has a label for training. The others are held out.
  const Tensor labelled = lt(rand({kNodes}), 0.1);
  const auto share_right = [&](const Tensor& logits) {
    const Tensor right = eq(argmax(logits), group), held_out = logical_not(labelled);
    return count_nonzero(logical_and(right, held_out)).item() / count_nonzero(held_out).item();
  };

  GraphNetwork net;
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(1e-2, 100), .weight_decay = 0.05});
  for (int step = 0; step < 100; ++step) {
    opt.backward(cross_entropy_terms(net(x, graph), group).loss(labelled));
    opt.step();
  }
  net.eval();
  const NoGrad guard;
  const double by_graph = share_right(net(x, graph)), by_features = share_right(x.slice(1, 0, 4));
  std::printf("%.1f %% of the held-out nodes are right, by their features alone %.1f %%\n",
              100 * by_graph, 100 * by_features);
  return by_graph >= 0.9 ? 0 : 1;
}
