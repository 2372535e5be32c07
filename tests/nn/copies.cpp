// Copies of modules share their parameters: what warns of it, and what is meant to share.
#include <memory>
#include <optional>
#include <vector>

#include "firn/firn.h"
#include "optim/problem.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::mentions;
using firn::testing::Warnings;

namespace {

struct CopiedBlock : nn::Module {
  nn::Linear l{4, 4};
  nn::LayerNorm n{4};
  FIRN_MEMBERS(l, n)
  Tensor forward(const Tensor& x) override { return x + relu(l(n(x))); }
};

struct CopiedNet : nn::Module {
  std::vector<CopiedBlock> blocks = std::vector<CopiedBlock>(3, CopiedBlock());
  nn::Linear out{4, 2};
  FIRN_MEMBERS(blocks, out)
};

struct SeparateNet : nn::Module {
  std::vector<CopiedBlock> blocks = std::vector<CopiedBlock>(3);
  FIRN_MEMBERS(blocks)
};

struct SharedNet : nn::Module {
  std::vector<std::shared_ptr<CopiedBlock>> blocks =
      std::vector<std::shared_ptr<CopiedBlock>>(3, std::make_shared<CopiedBlock>());
  FIRN_MEMBERS(blocks)
};

struct PartlyTied : nn::Module {
  std::vector<CopiedBlock> blocks = std::vector<CopiedBlock>(2);
  FIRN_MEMBERS(blocks)
  PartlyTied() { blocks[1].l.weight = blocks[0].l.weight; }
};

struct Members : nn::Module {
  CopiedBlock first, second;
  nn::Linear out{4, 2};
  FIRN_MEMBERS(first, second, out)
  Tensor forward(const Tensor& x) override { return out(second(first(x))); }
};

}  // namespace

TEST_CASE("an optimizer and a summary warn of elements of a list that are one module's copies") {
  const CopiedNet net;
  Warnings warnings;
  const optim::SGD opt(net.parameters());
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0], {"[CopiedNet]", "blocks.1, blocks.2 share all parameters with",
                                     "blocks.0", "nn::clone()", "std::shared_ptr"}));
  CHECK(net.named_parameters().size() == 6);
  CHECK(warnings.texts.size() == 1);  // said once
  CHECK(mentions(net.summary(), {"\nblocks.1, blocks.2 share all parameters with blocks.0\n"}));
}

TEST_CASE("a layer that is twice in a Sequential is warned of, with its number") {
  const nn::Linear layer(4, 4);
  const nn::Sequential net{layer, nn::ReLU(), layer};
  Warnings warnings;
  CHECK(net.parameters().size() == 2);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0], {"2 shares all parameters with 0"}));
}

TEST_CASE("layers of their own, shared ones and weights that are tied in part cause no warning") {
  Warnings warnings;
  CHECK(SeparateNet().parameters().size() == 12);
  CHECK(SharedNet().parameters().size() == 4);
  CHECK(PartlyTied().parameters().size() == 7);
  CHECK(nn::clone(SeparateNet()).parameters().size() == 12);
  CHECK(warnings.texts.empty());
  CHECK(SeparateNet().summary().find("share") == std::string::npos);
}

TEST_CASE("a model without a list: its members with modules of their own are the blocks") {
  Members net;
  CHECK(nn::checkpoint_blocks(net) == 2);
  CHECK(net.first.checkpoint_options());
  CHECK(net.second.checkpoint_options());
  CHECK_FALSE(net.first.l.checkpoint_options());
  CHECK_FALSE(net.out.checkpoint_options());
  CHECK(nn::checkpoint_blocks(net, {.every = 2}) == 1);
  CHECK_FALSE(net.second.checkpoint_options());

  const Tensor x = randn({8, 4});
  const optim::SGD opt(net.parameters());
  nn::BlockCheckpoints chosen =
      nn::checkpoint_within(net, std::size_t{1} << 30, [&] { net(x).sum().backward(); });
  CHECK(chosen.every == 0);
}

TEST_CASE("set_checkpoint({}) sets default options, and nullopt switches checkpoints off") {
  Members net;
  CHECK_FALSE(net.checkpoint_options());
  net.set_checkpoint({});
  REQUIRE(net.checkpoint_options());
  CHECK(net.checkpoint_options()->keep == Keep::inputs);
  CHECK(net.checkpoint_options()->check_values);
  net.first.set_checkpoint({.keep = Keep::products});
  REQUIRE(net.first.checkpoint_options());
  CHECK(net.first.checkpoint_options()->keep == Keep::products);
  net.second.set_checkpoint(net.first.checkpoint_options());
  REQUIRE(net.second.checkpoint_options());
  CHECK(net.second.checkpoint_options()->keep == Keep::products);
  net.set_checkpoint(std::nullopt);
  CHECK_FALSE(net.checkpoint_options());
  net.first.set_checkpoint(net.checkpoint_options());
  CHECK_FALSE(net.first.checkpoint_options());
}

TEST_CASE("a teacher that has an optimizer is frozen by NoGrad or Freeze, and the error says so") {
  nn::MLP teacher({4, 8, 2}), student({4, 8, 2});
  optim::SGD opt_t(teacher.parameters(), {.lr = 0.1});
  optim::SGD opt_s(student.parameters(), {.lr = 0.1});
  CHECK(mentions(error_of([&] { teacher.set_requires_grad(false); }),
                 {"belongs to an optimizer", "NoGrad", "Freeze", "destroy its optimizer"}));
  const Tensor x = randn({16, 4});
  const Tensor before = teacher(x).detach();
  const Tensor target = [&] {
    const NoGrad guard;
    return softmax(teacher(x));
  }();
  opt_s.backward(cross_entropy(student(x), target));
  CHECK(opt_s.step());
  const Freeze frozen(teacher.parameters());
  opt_s.backward(cross_entropy(student(x), softmax(teacher(x))));
  CHECK(opt_s.step());
  CHECK(equal(teacher(x), before));
}
