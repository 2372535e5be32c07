// Losses, reduced in every way that PyTorch has.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

/// In the dtype of `like`: firn's losses of 16-bit operands are f32.
Results in_dtype_of(const Tensor& like, const Tensor& result) { return {result.to(like.dtype())}; }

bool asks_for_terms(A a) { return a.text("reduction", "mean") == "none"; }

/// The sum or the mean, divided by what PyTorch divides by.
Results whole(A a, const Tensor& like, const Loss& loss) {
  return in_dtype_of(like, a.text("reduction", "mean") == "sum" ? loss.sum : loss.mean());
}

/// The terms, their sum or their mean.
Results reduced(A a, const Tensor& like, const LossTerms& terms) {
  return asks_for_terms(a) ? in_dtype_of(like, terms.terms) : whole(a, like, terms.loss());
}

/// Terms with PyTorch's `weight`, which counts in the divisor too.
Results weighted(A a, LossTerms terms) {
  const Tensor& x = a.tensor("input");
  if (!a.has("weight")) return reduced(a, x, terms);
  const Tensor w = expand(a.tensor("weight").to(terms.terms.dtype()), terms.terms.shape());
  return reduced(a, x, {terms.terms * w, w});
}

/// PyTorch has the classes on axis 1.
CrossEntropyOptions class_options(A a) {
  return {.ignore_index = a.integer("ignore_index", -100),
          .label_smoothing = a.number("label_smoothing", 0),
          .class_weights = a.tensor_or_none("weight"),
          .axis = a.tensor("input").rank() >= 2 ? 1 : 0};
}

/// Unweighted sums and means are said by the whole loss, which some losses compute without terms.
template <LossTerms (*terms)(const Tensor&, const Tensor&),
          Loss (*loss)(const Tensor&, const Tensor&)>
Results of_pairs(A a) {
  const Tensor &x = a.tensor("input"), &target = a.tensor("target");
  if (asks_for_terms(a) || a.has("weight")) return weighted(a, terms(x, target));
  return whole(a, x, loss(x, target));
}

Results huber(A a) {
  const Tensor &x = a.tensor("input"), &target = a.tensor("target");
  const double delta = a.number("delta", 1);
  if (asks_for_terms(a) || a.has("weight")) return weighted(a, huber_terms(x, target, delta));
  return whole(a, x, huber_loss(x, target, delta));
}

template <LossTerms (*terms)(const Tensor&, const Tensor&, const CrossEntropyOptions&),
          Loss (*loss)(const Tensor&, const Tensor&, const CrossEntropyOptions&)>
Results of_classes(A a) {
  const Tensor &x = a.tensor("input"), &target = a.tensor("target");
  if (asks_for_terms(a)) return reduced(a, x, terms(x, target, class_options(a)));
  return whole(a, x, loss(x, target, class_options(a)));
}

/// PyTorch's binary losses divide by the number of elements, whatever the weights.
Results binary(A a, LossTerms terms) {
  if (a.has("weight")) terms.terms = terms.terms * a.tensor("weight").to(terms.terms.dtype());
  return reduced(a, a.tensor("input"), terms);
}

Results bce_of_logits(A a) {
  const Tensor &x = a.tensor("input"), &target = a.tensor("target");
  const BceOptions options{.pos_weight = a.tensor_or_none("pos_weight")};
  if (asks_for_terms(a) || a.has("weight"))
    return binary(a, bce_with_logits_terms(x, target, options));
  return whole(a, x, bce_with_logits(x, target, options));
}

/// Lengths are lists or tensors.
Tensor lengths(A a, const char* name) {
  if (a.is<Tensor>(name)) return a.tensor(name);
  const std::vector<std::int64_t> list = a.list(name);
  return tensor(list, {static_cast<std::int64_t>(list.size())});
}

Results connectionist(A a) {
  const Tensor &x = a.tensor("log_probs"), &targets = a.tensor("targets");
  const Tensor steps = lengths(a, "input_lengths"), labels = lengths(a, "target_lengths");
  const CtcOptions options{.blank = a.integer("blank", 0),
                           .zero_infinity = a.flag("zero_infinity", false)};
  if (a.text("reduction", "mean") != "mean")
    return reduced(a, x, ctc_terms(x, targets, steps, labels, options));
  return in_dtype_of(x, ctc_loss(x, targets, steps, labels, options).mean());
}

Results kl_divergence(A a) {
  const Tensor& x = a.tensor("input");
  const Tensor target = a.flag("log_target", false) ? exp(a.tensor("target")) : a.tensor("target");
  const std::string reduction = a.text("reduction", "mean");
  const Loss loss = kl_div(x, target);
  if (reduction == "sum") return in_dtype_of(x, loss.sum);
  if (reduction == "mean") return in_dtype_of(x, loss.sum / static_cast<double>(x.numel()));
  if (reduction != "batchmean") throw Refused("argument 'reduction' is " + reduction);
  if (x.rank() == 0 || x.size(0) * x.size(-1) != x.numel())
    throw Refused("rows are counted otherwise");
  return in_dtype_of(x, loss.mean());
}

}  // namespace

std::vector<Entry> loss_entries() {
  return {
      {"nn.functional.cross_entropy",
       "input target weight size_average! ignore_index reduce! reduction label_smoothing",
       Sums::yes, of_classes<cross_entropy_terms, cross_entropy>},
      {"nn.functional.nll_loss", "input target weight size_average! ignore_index reduce! reduction",
       Sums::yes, of_classes<nll_terms, nll_loss>},
      {"nn.functional.mse_loss", "input target size_average! reduce! reduction weight", Sums::yes,
       of_pairs<mse_terms, mse_loss>},
      {"nn.functional.l1_loss", "input target size_average! reduce! reduction weight", Sums::yes,
       of_pairs<l1_terms, l1_loss>},
      {"nn.functional.huber_loss", "input target reduction delta weight", Sums::yes, huber},
      {"nn.functional.smooth_l1_loss", "input target size_average! reduce! reduction beta",
       Sums::yes,
       [](A a) {
         return weighted(
             a, smooth_l1_terms(a.tensor("input"), a.tensor("target"), a.number("beta", 1)));
       }},
      {"nn.functional.soft_margin_loss", "input target size_average! reduce! reduction", Sums::yes,
       of_pairs<soft_margin_terms, soft_margin_loss>},
      {"nn.functional.hinge_embedding_loss", "input target margin size_average! reduce! reduction",
       Sums::yes,
       [](A a) {
         return weighted(a, hinge_embedding_terms(a.tensor("input"), a.tensor("target"),
                                                  a.number("margin", 1)));
       }},
      {"nn.functional.margin_ranking_loss",
       "input1 input2 target margin size_average! reduce! reduction", Sums::yes,
       [](A a) {
         const Tensor& x = a.tensor("input1");
         return reduced(a, x,
                        margin_ranking_terms(x, a.tensor("input2"), a.tensor("target"),
                                             a.number("margin", 0)));
       }},
      {"nn.functional.cosine_embedding_loss",
       "input1 input2 target margin size_average! reduce! reduction", Sums::yes,
       [](A a) {
         const Tensor& x = a.tensor("input1");
         return reduced(a, x,
                        cosine_embedding_terms(x, a.tensor("input2"), a.tensor("target"),
                                               a.number("margin", 0)));
       }},
      {"nn.functional.triplet_margin_loss",
       "anchor positive negative margin p eps swap size_average! reduce! reduction", Sums::yes,
       [](A a) {
         const Tensor& x = a.tensor("anchor");
         return reduced(a, x,
                        triplet_margin_terms(x, a.tensor("positive"), a.tensor("negative"),
                                             {.margin = a.number("margin", 1),
                                              .p = a.number("p", 2),
                                              .eps = a.number("eps", 1e-6),
                                              .swap = a.flag("swap", false)}));
       }},
      {"nn.functional.gaussian_nll_loss", "input target var full eps reduction", Sums::yes,
       [](A a) {
         const Tensor& x = a.tensor("input");
         return reduced(
             a, x,
             gaussian_nll_terms(x, a.tensor("target"), a.tensor("var"),
                                {.full = a.flag("full", false), .eps = a.number("eps", 1e-6)}));
       }},
      {"nn.functional.poisson_nll_loss",
       "input target log_input full size_average! eps reduce! reduction", Sums::yes,
       [](A a) {
         const Tensor& x = a.tensor("input");
         if (a.flag("full", false) && min(a.tensor("target").to(f64)).item() <= 0)
           throw Refused("a target of 0 with 'full'");
         return reduced(a, x,
                        poisson_nll_terms(x, a.tensor("target"),
                                          {.log_input = a.flag("log_input", true),
                                           .full = a.flag("full", false),
                                           .eps = a.number("eps", 1e-8)}));
       }},
      {"nn.functional.binary_cross_entropy", "input target weight size_average! reduce! reduction",
       Sums::yes, [](A a) { return binary(a, bce_terms(a.tensor("input"), a.tensor("target"))); }},
      {"nn.functional.binary_cross_entropy_with_logits",
       "input target weight size_average! reduce! reduction pos_weight", Sums::yes, bce_of_logits},
      {"nn.functional.ctc_loss",
       "log_probs targets input_lengths target_lengths blank reduction zero_infinity", Sums::yes,
       connectionist},
      {"nn.functional.kl_div", "input target size_average! reduce! reduction log_target", Sums::yes,
       kl_divergence},
  };
}

}  // namespace firn::interop
