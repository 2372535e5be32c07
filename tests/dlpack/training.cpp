// Exchanged tensors in trainings: gradients, in-place writes, parameters that an optimizer moves,
// weights that ranks divide.
#include <string>
#include <vector>

#include "dlpack/foreign.h"
#include "firn/dist/distribute.h"
#include "firn/dist/local.h"
#include "support/catch.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using io::delete_dlpack;
using io::from_dlpack;
using io::to_dlpack;

std::vector<double> weights_after_training(const Tensor& x, const Tensor& y) {
  manual_seed(3);
  nn::MLP net({6, 8, 1});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  for (int i = 0; i < 4; ++i) {
    opt.backward(mse_loss(net(x), y));
    opt.step();
  }
  std::vector<double> all;
  for (const Tensor& p : opt.parameters())
    for (const double v : values_of(p)) all.push_back(v);
  return all;
}

TEST_CASE("dlpack: a training on another library's batch has the bits of one on firn's") {
  const Tensor x = sin(arange(48, f32) * 0.1).reshape({6, 8}).transpose(0, 1);
  const Tensor y = x.sum({1}, true);
  Foreign batch(x), target(y);
  const std::vector<double> want = weights_after_training(x, y);
  const Tensor x2 = from_dlpack(batch.give()), y2 = from_dlpack(target.give());
  expect_same("weights", weights_after_training(x2, y2), want);
}

TEST_CASE("dlpack: what came in can be a parameter, and its memory be read there meanwhile") {
  Foreign foreign(ones({3}));
  Tensor w = from_dlpack(foreign.give());
  w.set_requires_grad();
  (w * w).sum().backward();
  CHECK(values_of(w.grad()) == std::vector<double>{2, 2, 2});
  {
    const NoGrad guard;
    w -= 0.5 * w.grad();
  }
  CHECK(values_of(foreign.tensor()) == std::vector<double>{0, 0, 0});

  // An optimizer moves its parameters: the other library gets its memory back.
  optim::SGD opt({w}, {.lr = 0.5});
  CHECK(foreign.deleted() == 1);
  opt.backward((w + 1).square().sum());
  opt.step();
  CHECK(values_of(w) == std::vector<double>{-1, -1, -1});
  CHECK(values_of(foreign.tensor()) == std::vector<double>{0, 0, 0});
}

TEST_CASE("dlpack: a write through what came back is seen by autograd") {
  const Tensor x = ones({3}).set_requires_grad();
  const Tensor h = x * 2;
  const Tensor loss = (h * h).sum();  // saves h
  const Tensor back = from_dlpack(to_dlpack(h.detach()));
  back.zero_();
  CHECK(error_of([&] { loss.backward(); }).find("zero_") != std::string::npos);
}

TEST_CASE("dlpack: a write to what came in counts, for all views of it") {
  Foreign foreign(ones({3}));
  const Tensor t = from_dlpack(foreign.give());
  const Tensor x = ones({3}).set_requires_grad();
  CHECK(t.storage()->version() == 0);
  const Tensor loss = (x * t).sum();  // saves t
  t.slice(0, 1, 2).fill_(5);
  CHECK(t.storage()->version() == 1);
  CHECK(error_of([&] { loss.backward(); }).find("fill_") != std::string::npos);
}

TEST_CASE("dlpack: no optimizer moves a parameter that another library has") {
  manual_seed(1);
  nn::Linear net(3, 2);
  const std::vector<double> before = values_of(net.weight);
  const void* const place = net.weight.view().data;
  DLManagedTensorVersioned* const m = to_dlpack(net.weight.detach());
  const std::string said = error_of([&] { optim::Adam(net.parameters()); });
  CHECK(said.find("in use by another library") != std::string::npos);
  CHECK(said.find("parameter 0") != std::string::npos);
  CHECK(net.weight.view().data == place);
  CHECK(values_of(net.weight) == before);
  CHECK(error_of([&] {
          net.weight.storage()->move_into(Storage::allocate(64, default_device()), 0);
        }).find("[Storage::move_into]") == 0);
  delete_dlpack(m);

  optim::Adam opt(net.parameters(), {.lr = 0.1});
  // Given away afterwards, it stays where it is, and the other library sees the steps.
  DLManagedTensorVersioned* const later = to_dlpack(net.weight.detach());
  opt.backward(net(ones({4, 3})).sum());
  opt.step();
  CHECK(later->dl_tensor.data == net.weight.view().data);
  CHECK(values_of(net.weight) != before);
  delete_dlpack(later);
}

TEST_CASE("dlpack: weights that ranks divide are not given away, and the other way round",
          "[host]") {
  dist::run_local(2, [](const dist::Group& group) {
    manual_seed(1);
    nn::Linear net(3, 2);
    optim::Adam opt(net.parameters());
    DLManagedTensorVersioned* const m = to_dlpack(net.weight.detach());
    const std::string said = error_of([&] { dist::distribute(opt, group, {.zero = 3}); });
    THREAD_CHECK(said.find("in use by another library") != std::string::npos);
    THREAD_CHECK(values_of(net.weight).size() == 6);
    delete_dlpack(m);
  });
  dist::run_local(2, [](const dist::Group& group) {
    manual_seed(1);
    nn::Linear net(3, 2);
    optim::Adam opt(net.parameters());
    dist::distribute(opt, group, {.zero = 3});
    THREAD_CHECK(error_of([&] {
                   to_dlpack(net.weight.detach());
                 }).find("ranks shard the weights") != std::string::npos);
  });
}

}  // namespace
}  // namespace firn::testing
