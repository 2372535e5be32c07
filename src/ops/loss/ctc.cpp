// Connectionist temporal classification: targets in either form become labels and their starts.
#include "kernels/sequence/ctc.h"

#include <algorithm>
#include <vector>

#include "firn/ops/elementwise.h"
#include "firn/ops/reduce.h"
#include "ops/loss/loss_terms.h"

namespace firn {

using namespace ops;

namespace {

constexpr const char* kCtcLoss = "ctc_loss";

/// The operands of a batch, in the kernels' form.
struct CtcOperands {
  Tensor labels, starts, input_lengths, target_lengths;
  std::int64_t longest;
  CtcOptions options;

  kernels::CtcTargets view() const {
    return {labels.view(), starts.view(), input_lengths.view(),  target_lengths.view(),
            longest,       options.blank, options.zero_infinity, kCtcLoss};
  }
};

Tensor plain_numbers(const Tensor& t, Device device) {
  return contiguous(cast(to_device(t.detach(), device), i64));
}

/// Returns the lengths as [n], which may be on the CPU. Checks them if they are.
Tensor lengths_for(const char* name, const Tensor& lengths, const Tensor& x, bool single,
                   std::int64_t most) {
  require_index(kCtcLoss, lengths);
  const std::int64_t n = single ? 1 : x.size(1);
  FIRN_CHECK((lengths.shape() == Shape{n}) || (single && lengths.rank() == 0), kCtcLoss,
             "one number for each sequence", "{} {} for log_probs {}", name, describe(lengths),
             describe(x));
  FIRN_CHECK(lengths.device() == x.device() || lengths.device().is_cpu(), kCtcLoss,
             "move it to the device of log_probs, or to the CPU", "{} {} for log_probs {}", name,
             describe(lengths), describe(x));
  if (lengths.device().is_cpu() && !runtime::dry_run()) {
    const auto numbers = plain_numbers(lengths, Device::cpu()).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < numbers.size(); ++i)
      FIRN_CHECK(numbers[i] >= 0 && numbers[i] <= most, kCtcLoss,
                 "a sequence has no more steps than log_probs, and no more labels than targets",
                 "{} of sequence {} is {}, not in [0, {}]", name, i, numbers[i], most);
  }
  return reshape(plain_numbers(lengths, x.device()), {n});
}

void check_labels(const CtcOperands& in, std::int64_t classes, bool joined) {
  const auto numbers = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  const std::vector<std::int64_t> labels = numbers(in.labels), starts = numbers(in.starts),
                                  counts = numbers(in.target_lengths);
  std::int64_t all = 0;
  for (const std::int64_t count : counts) all += count;
  FIRN_CHECK(!joined || all == in.labels.numel(), kCtcLoss,
             "targets with one axis hold the labels of all sequences, one after the other",
             "targets hold {} labels, target_lengths add up to {}", in.labels.numel(), all);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::int64_t j = 0; j < counts[i]; ++j) {
      const std::int64_t label = labels[static_cast<std::size_t>(starts[i] + j)];
      FIRN_CHECK(label >= 0 && label < classes, kCtcLoss, "labels are classes of log_probs",
                 "label {} of sequence {} is {}, not in [0, {})", j, i, label, classes);
      FIRN_CHECK(label != in.options.blank, kCtcLoss,
                 "targets hold labels alone; CtcOptions::blank is a class of its own",
                 "label {} of sequence {} is {}, the blank", j, i, label);
    }
  }
}

CtcOperands operands_for(const Tensor& x, const Tensor& targets, const Tensor& input_lengths,
                         const Tensor& target_lengths, const CtcOptions& options, bool single) {
  require_index(kCtcLoss, targets);
  const std::int64_t n = single ? 1 : x.size(1);
  const bool joined = targets.rank() == 1;
  FIRN_CHECK(joined || (targets.rank() == 2 && targets.size(0) == n), kCtcLoss,
             "targets are [n, longest], or the labels of all sequences in one row",
             "targets {} for log_probs {}", describe(targets), describe(x));
  FIRN_CHECK(targets.device() == x.device(), kCtcLoss, "targets.to(log_probs.device())",
             "devices differ: targets {} and log_probs {}", describe(targets), describe(x));
  FIRN_CHECK(options.blank >= 0 && options.blank < x.size(-1), kCtcLoss, "0 is usual",
             "blank = {} is no class of log_probs {}", options.blank, describe(x));
  CtcOperands in{
      .labels = reshape(plain_numbers(targets, x.device()), {targets.numel()}),
      .starts = {},
      .input_lengths = lengths_for("input_lengths", input_lengths, x, single, x.size(0)),
      .target_lengths = lengths_for("target_lengths", target_lengths, x, single, targets.size(-1)),
      .longest = targets.size(-1),
      .options = options};
  in.starts = joined ? sub(cumsum(in.target_lengths, 0), in.target_lengths)
                     : mul(arange(n, {.dtype = i64, .device = x.device()}),
                           static_cast<double>(in.longest));
  if (x.device().is_cpu() && !runtime::dry_run()) check_labels(in, x.size(-1), joined);
  return in;
}

}  // namespace

LossTerms ctc_terms(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, const CtcOptions& options) try {
  require_floating(kCtcLoss, log_probs);
  FIRN_CHECK(log_probs.rank() == 2 || log_probs.rank() == 3, kCtcLoss,
             "log_probs are [steps, n, classes], or [steps, classes] without a batch",
             "log_probs {}", describe(log_probs));
  const bool single = log_probs.rank() == 2;
  const CtcOperands in =
      operands_for(log_probs, targets, input_lengths, target_lengths, options, single);
  const Autocasted given(Policy::fp32, log_probs);
  const Tensor x = single ? unsqueeze(given[0], 1) : given[0];

  const std::int64_t steps = x.size(0), n = x.size(1);
  const bool recorded = autograd::detail::needs_recording({&x});
  const std::int64_t rows = recorded ? std::max<std::int64_t>(steps, 1) : 2;
  const DType compute = compute_dtype(x.dtype());
  const Tensor terms = empty({n}, compute, x.device());
  const Tensor alpha = empty({n, rows, 2 * std::min(in.longest, steps) + 1}, compute, x.device());
  kernels::ctc(x.view(), in.view(), terms.mutable_view(), alpha.mutable_view(), stream_of(x));
  const auto backward = [longest = in.longest, options](Backward& b) {
    const CtcOperands kept{b.saved(1), b.saved(2), b.saved(3), b.saved(4), longest, options};
    const auto [dx, beta] = b.sink(0);
    kernels::ctc_backward(b.grad().view(), b.saved(0).view(), kept.view(), b.saved(5).view(),
                          dx.mutable_view(), beta, b.stream());
  };
  const Tensor y = record(kCtcLoss, terms, {&x}, {Saved::input(0)}, backward);
  // alpha is not written for steps and states beyond a sequence's own.
  if (recorded)
    autograd::save(y, {in.labels, in.starts, in.input_lengths, in.target_lengths, alpha},
                   [](std::size_t i) { return i == 4; });
  return {single ? squeeze(y, 0) : y};
}
FIRN_OUT_OF_MEMORY(kCtcLoss)

Loss ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
              const Tensor& target_lengths, const CtcOptions& options) {
  const LossTerms found = ctc_terms(log_probs, targets, input_lengths, target_lengths, options);
  const Tensor& terms = found.terms;
  const Tensor counts = cast(to_device(target_lengths, terms.device()), terms.dtype());
  return LossTerms{div(terms, maximum(reshape(counts, terms.shape()), 1.0))}.loss();
}

}  // namespace firn
