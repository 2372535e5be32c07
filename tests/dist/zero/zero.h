// What the tests of ZeRO stages share: trainings whose ends are compared between stages.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "dist/step/bucket_size.h"
#include "dist/training.h"

namespace firn::testing {

/// While alive, buckets of sharded gradients are this small.
class SmallBuckets {
 public:
  explicit SmallBuckets(std::int64_t bytes) : before_(optim::bucket_bytes()) {
    optim::bucket_bytes() = bytes;
  }
  ~SmallBuckets() { optim::bucket_bytes() = before_; }
  SmallBuckets(const SmallBuckets&) = delete;
  SmallBuckets& operator=(const SmallBuckets&) = delete;

 private:
  std::int64_t before_;
};

/// A network with a residual, a layer that is used twice, dropout, a checkpoint, and an embedding
/// that is the last layer's weight, too.
struct ZeroNet : nn::Module {
  nn::Embedding tokens{11, 24};
  nn::Linear in{24, 40}, twice{40, 40}, out{40, 24};
  nn::Dropout drop;
  nn::LayerNorm norm{24};
  FIRN_MEMBERS(tokens, in, twice, out, drop, norm)
  explicit ZeroNet(double p = 0.2) : drop(p) { twice.set_checkpoint({}); }
  Tensor forward(const Tensor& ids) override {
    const Tensor x = tokens(ids), h = relu(in(x));
    return norm(x + out(drop(h + twice(gelu(twice(h))))));
  }
};

/// Tokens, and others that are to come out, which follow from the seed.
struct ZeroBatch {
  Tensor ids, next;
  ZeroBatch(std::int64_t n, std::uint64_t seed)
      : ids(Rows(n, 1, 11, seed).y), next(Rows(n, 1, 11, seed + 1000).y) {}

  Loss loss(ZeroNet& net, std::int64_t first, std::int64_t last) const {
    return linear_cross_entropy(net(ids.slice(0, first, last)), net.tokens.weight,
                                next.slice(0, first, last));
  }
  Loss loss(ZeroNet& net) const { return loss(net, 0, ids.size(0)); }
};

}  // namespace firn::testing
