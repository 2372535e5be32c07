// The 1F1B schedule. Stage s of p is w = p - 1 - s micro-batches ahead, of m in all. It exchanges
// with stage s + 1: w times an activation; m - w times an activation and a gradient at once; w
// times a gradient. Stage s + 1 sees the same, so no two ranks wait for each other.
#include "firn/dist/parallel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "dist/step/model.h"
#include "dist/step/stage.h"
#include "dist/transport.h"
#include "firn/autograd.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "optim/impl.h"
#include "tensor/impl.h"

namespace firn::dist {
namespace {

constexpr const char* kOp = "Pipeline";

/// Header sent before a tensor: its shape and dtype and, with a gradient, its loss.
struct Header {
  std::int64_t rank = 0, dtype = 0;
  std::int64_t sizes[kMaxRank] = {};
  double loss = 0, weight = 0;
};
static_assert(sizeof(Header) == (4 + kMaxRank) * sizeof(std::int64_t));

/// A tensor in transit, and its header, which travels between the hosts.
struct Parcel {
  Tensor header = zeros({4 + kMaxRank}, DType::i64, Device::cpu());
  Tensor tensor;

  Header& head() const { return *static_cast<Header*>(header.mutable_view().data); }
  double loss() const { return head().loss; }
  double weight() const { return head().weight; }
};

Parcel packed(const Tensor& t, double loss = 0, double weight = 0) {
  Parcel out;
  out.tensor = t.detach().contiguous();
  Header& h = out.head();
  h = {.rank = t.rank(),
       .dtype = static_cast<std::int64_t>(t.dtype()),
       .sizes = {},
       .loss = loss,
       .weight = weight};
  for (int i = 0; i < t.rank(); ++i) h.sizes[i] = t.size(i);
  return out;
}

/// Allocates the tensor that a header announces.
void unpack(Parcel& parcel, const Group& g) {
  const Header& h = parcel.head();
  Shape shape;
  for (std::int64_t i = 0; i < h.rank; ++i) shape.push_back(h.sizes[i]);
  parcel.tensor = empty(shape, static_cast<DType>(h.dtype), g.device());
}

void send(const Group& g, const Parcel& parcel, int to) {
  g.host().send(parcel.header, to);
  g.send(parcel.tensor, to);
}

Parcel receive(const Group& g, int from) {
  Parcel out;
  g.host().recv(out.header, from);
  unpack(out, g);
  g.recv(out.tensor, from);
  return out;
}

Parcel exchange(const Group& g, const Parcel& parcel, int with) {
  Parcel out;
  g.host().send_recv(parcel.header, with, out.header, with);
  unpack(out, g);
  g.send_recv(parcel.tensor, with, out.tensor, with);
  return out;
}

enum class Work : std::int64_t { run_batch, infer };

std::string_view name_of(std::int64_t call) {
  return call == static_cast<std::int64_t>(Work::infer) ? "infer()" : "run_batch()";
}

/// Runs check(). Throws on all stages if one refuses to begin, or if they differ in their call or
/// their cut of the batch. Otherwise some would wait for messages that do not come.
template <class Check>
void require_alike(const Group& stages, Work call, std::int64_t samples, std::int64_t micro_batch,
                   const Check& check) {
  std::exception_ptr refusal;
  try {
    check();
  } catch (...) {
    refusal = std::current_exception();
  }
  constexpr int kWords = 4;
  const Tensor mine = empty({kWords}, DType::i64, Device::cpu());
  const Tensor all = empty({kWords * stages.size()}, DType::i64, Device::cpu());
  auto* const own = mine.mutable_view().as<std::int64_t>();
  own[0] = static_cast<std::int64_t>(call);
  own[1] = samples;
  own[2] = micro_batch;
  own[3] = refusal != nullptr;
  stages.host().all_gather(mine, all);
  if (refusal) std::rethrow_exception(refusal);
  const auto* const zero = all.view().as<std::int64_t>();
  for (int s = 0; s < stages.size(); ++s)
    if (zero[kWords * s + 3] != 0)
      throw RankError(kOp, stages.rank(), s, fmt::format("stage {} has refused the call", s),
                      "its error says why");
  for (int s = 1; s < stages.size(); ++s) {
    const auto* const of = zero + kWords * s;
    FIRN_CHECK(of[0] == zero[0], kOp, "make the same calls on every stage",
               "stage {} calls {}, and stage 0 calls {}", s, name_of(of[0]), name_of(zero[0]));
    FIRN_CHECK(of[1] == zero[1] && of[2] == zero[2], kOp,
               fmt::format("call {} alike on every stage", name_of(of[0])),
               "stage {} has {} samples in micro-batches of {}, and stage 0 {} in {}", s, of[1],
               of[2], zero[1], zero[2]);
  }
}

/// Runs fn(), which exchanges messages with other stages. If it throws, the others do not wait for
/// more messages: their calls throw too.
template <class Fn>
void with_stages(const Group& stages, const Fn& fn) {
  const auto give_up = [&](const char* why) { GroupAccess::transport(stages)->give_up(why); };
  try {
    fn();
  } catch (const std::exception& e) {
    give_up(e.what());
    throw;
  } catch (...) {
    give_up("something that is no std::exception");
    throw;
  }
}

/// Makes the checks of run_batch() and infer() before any exchange.
void check_batch(const Group& stages, std::int64_t samples, std::int64_t micro_batch,
                 const Pipeline::InputsOf& inputs_of) {
  FIRN_CHECK(samples >= 1 && micro_batch >= 1, kOp, "both are 1 or more",
             "a batch of {} samples in micro-batches of {}", samples, micro_batch);
  FIRN_CHECK(inputs_of || stages.rank() > 0, kOp,
             "give a function that returns the inputs of samples [first, last)",
             "inputs_of is empty on the first stage");
}

void require_no_dry_run() {
  FIRN_CHECK(!runtime::dry_run(), kOp, "plan a stage by itself",
             "a batch of several stages cannot be planned: what comes from others is not known");
}

/// Runs a stage's forward pass.
Tensor pass(nn::Module& stage, const Tensor& input, const Group& stages) {
  Tensor output = stage(input);
  const bool last = stages.rank() == stages.size() - 1;
  FIRN_CHECK(output.defined() && (last || is_floating(output.dtype())), kOp,
             "return the activation that the next stage takes",
             "stage {} returns {}, which is no floating tensor", stages.rank(),
             output.defined() ? describe(output) : "an undefined tensor");
  FIRN_CHECK(stages.size() == 1 || output.device() == stages.device(), kOp,
             "move the stage to the group's device",
             "stage {} returns {}, and the stages exchange tensors on {}", stages.rank(),
             describe(output), stages.device());
  return output;
}

/// Returns the last stage's tensor on every stage.
Tensor from_last(const Group& stages, const Tensor& t) {
  const int last = stages.size() - 1;
  Parcel parcel;
  if (stages.rank() == last) parcel = packed(t);
  stages.host().broadcast(parcel.header, last);
  if (stages.rank() != last) unpack(parcel, stages);
  stages.broadcast(parcel.tensor, last);
  return parcel.tensor;
}

}  // namespace

/// One batch on one stage.
class Pipeline::Batch {
 public:
  Batch(Pipeline& pipeline, optim::Optimizer& optimizer, const InputsOf& inputs_of,
        const LossOf& loss_of)
      : pipeline_(pipeline),
        optimizer_(optimizer),
        inputs_of_(inputs_of),
        loss_of_(loss_of),
        stages_(pipeline.mesh_.pp()),
        first_(stages_.rank() == 0),
        last_(stages_.rank() == stages_.size() - 1) {}

  void micro_step(const optim::StageCycle& cycle, std::int64_t i) {
    const std::int64_t count = cycle.micro_batches();
    const std::int64_t ahead = std::min<std::int64_t>(stages_.size() - 1 - stages_.rank(), count);
    if (i == 0) {
      flying_.clear();
      forward_ = 0;
      while (forward_ < ahead) {
        forward(cycle, from_before());
        send(stages_, packed(flying_.back().output), next());
      }
      if (forward_ < count) input_ = from_before();
    }
    Parcel gradient;
    if (forward_ < count) {
      forward(cycle, std::move(input_));
      if (!last_) gradient = exchange(stages_, packed(flying_.back().output), next());
    } else if (!last_) {
      gradient = receive(stages_, next());
    }
    const Tensor back = backward(cycle, i, gradient);
    const bool more = forward_ < count;
    if (first_) return;
    const Parcel parcel = packed(back, loss_, weight_);
    if (more)
      input_ = exchange(stages_, parcel, before());
    else
      send(stages_, parcel, before());
  }

 private:
  /// A micro-batch between its forward and its backward pass.
  struct Flying {
    Tensor input, output;
  };

  int next() const noexcept { return stages_.rank() + 1; }
  int before() const noexcept { return stages_.rank() - 1; }
  Parcel from_before() const { return first_ ? Parcel() : receive(stages_, before()); }

  void forward(const optim::StageCycle& cycle, Parcel parcel) {
    Tensor input = std::move(parcel.tensor);
    if (first_)
      input = inputs_of_(cycle.begin(forward_), cycle.end(forward_));
    else
      input.set_requires_grad();
    Tensor output = pass(*pipeline_.stage_, input, stages_);
    flying_.push_back({std::move(input), std::move(output)});
    pipeline_.most_in_flight_ =
        std::max(pipeline_.most_in_flight_, static_cast<std::int64_t>(flying_.size()));
    ++forward_;
  }

  /// Returns the gradient of the stage's input; undefined on the first stage.
  Tensor backward(const optim::StageCycle& cycle, std::int64_t i, const Parcel& gradient) {
    Flying flying = std::move(flying_.front());
    flying_.pop_front();
    if (last_) {
      const Loss loss = loss_of_(flying.output, cycle.begin(i), cycle.end(i));
      flying.output = Tensor();
      optim::OptimizerAccess::impl(optimizer_).add_loss(loss);
      loss_ = loss.sum.item();
      weight_ = loss.weight.item();
    } else {
      loss_ = gradient.loss();
      weight_ = gradient.weight();
      optim::backward_stage(optimizer_, flying.output, gradient.tensor, loss_, weight_);
    }
    if (first_) return {};
    const Tensor back = flying.input.grad();
    FIRN_CHECK(back.defined(), kOp, "compute it from the input, outside of NoGrad and detach()",
               "the output of stage {} does not depend on its input", stages_.rank());
    return back;
  }

  Pipeline& pipeline_;
  optim::Optimizer& optimizer_;
  const InputsOf& inputs_of_;
  const LossOf& loss_of_;
  const Group& stages_;
  const bool first_, last_;
  std::deque<Flying> flying_;
  std::int64_t forward_ = 0;  ///< micro-batches whose forward pass is done
  Parcel input_;              ///< input of the next micro-batch
  double loss_ = 0, weight_ = 0;
};

Pipeline::Pipeline(const Mesh& mesh, nn::Module& stage) : mesh_(mesh), stage_(&stage) {}

optim::StepReport Pipeline::run_batch(optim::Optimizer& optimizer, std::int64_t samples,
                                      std::int64_t micro_batch, const InputsOf& inputs_of,
                                      const LossOf& loss_of) try {
  const Group& stages = mesh_.pp();
  const auto check = [&] {
    check_batch(stages, samples, micro_batch, inputs_of);
    FIRN_CHECK(loss_of || stages.rank() < stages.size() - 1, kOp,
               "give a function that computes the loss of samples [first, last)",
               "loss_of is empty on the last stage");
  };
  most_in_flight_ = 0;
  if (stages.size() == 1) {
    check();
    return optimizer.run_batch(samples, micro_batch, [&](std::int64_t first, std::int64_t last) {
      most_in_flight_ = 1;
      return loss_of((*stage_)(inputs_of(first, last)), first, last);
    });
  }
  auto& impl = optim::OptimizerAccess::impl(optimizer);
  require_no_dry_run();
  const auto call = [&] {
    require_alike(stages, Work::run_batch, samples, micro_batch, [&] {
      check();
      const auto* const of_model = impl.extension->find<optim::ModelStep>();
      FIRN_CHECK(of_model && of_model->model().peers().size() == mesh_.copy().size(), kOp,
                 "call distribute(optimizer, mesh) first",
                 "the optimizer does not know the stages");
    });
    Batch batch(*this, optimizer, inputs_of, loss_of);
    return optim::run_stage(optimizer, samples, micro_batch,
                            [&](const optim::StageCycle& cycle, std::int64_t i) {
                              with_stages(stages, [&] { batch.micro_step(cycle, i); });
                            });
  };
  return impl.extension->whole_call(std::ref(call));
}
FIRN_OUT_OF_MEMORY("Pipeline")

Tensor Pipeline::infer(std::int64_t samples, std::int64_t micro_batch,
                       const InputsOf& inputs_of) try {
  const Group& stages = mesh_.pp();
  const int s = stages.rank(), last = stages.size() - 1;
  const auto check = [&] { check_batch(stages, samples, micro_batch, inputs_of); };
  if (last > 0) {
    require_no_dry_run();
    require_alike(stages, Work::infer, samples, micro_batch, check);
  } else {
    check();
  }
  const NoGrad guard;
  Tensor all;
  with_stages(stages, [&] {
    std::vector<Tensor> outputs;
    for (std::int64_t i = 0; i < samples; i += micro_batch) {
      const Tensor input =
          s == 0 ? inputs_of(i, std::min(i + micro_batch, samples)) : receive(stages, s - 1).tensor;
      const Tensor output = pass(*stage_, input, stages);
      if (s < last)
        send(stages, packed(output), s + 1);
      else
        outputs.push_back(output);
    }
    if (s == last) all = cat(outputs, 0);
    if (last > 0) all = from_last(stages, all);
  });
  return all;
}
FIRN_OUT_OF_MEMORY("Pipeline")

}  // namespace firn::dist
