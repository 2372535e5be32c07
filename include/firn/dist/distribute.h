// Data-parallel training: each rank computes the gradients of its own samples, and all ranks make
// the same steps.
//
//   dist::run_local(4, [&](const dist::Group& group) {
//     manual_seed(1);                        // the same weights on every rank
//     Net net;
//     optim::AdamW opt(net.parameters(), {.lr = 1e-3});
//     dist::distribute(opt, group);
//     seed_thread(group.rank());             // other random numbers, for example for dropout
//     for (const auto& [x, y] : batches)     // the same on every rank, each computes its part
//       opt.run_batch(x.size(0), 16, [&](std::int64_t first, std::int64_t last) {
//         return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
//       });
//   });
#pragma once

#include <optional>

#include "firn/dist/group.h"
#include "firn/dist/mesh.h"
#include "firn/optim/optimizer.h"

namespace firn::dist {

struct DistributeOptions {
  /// Every rank takes over weights and state of rank 0's optimizer. Without it, ranks whose weights
  /// or state differ are an error.
  bool broadcast = false;
  /// What ranks keep parts of, instead of each keeping all (ZeRO, Rajbhandari et al. 2020). 0:
  /// nothing. 1: the optimizer's state, which is masters, moments and moving averages. Each rank
  /// updates its part of the weights, and receives the others'; weights have the same bits as with
  /// 0. A part is state/ranks. The last rank also has what is left over: less than 64 bytes of
  /// weights a rank, or 256 elements if states are in 8 bits. If a rule needs whole parameters
  /// (Muon, Adafactor, LAMB, Custom), a rank keeps whole ones. Not for ScheduleFreeAdamW, whose
  /// weights are made of its states.
  ///
  /// While distribute() runs, a rank has all of the state and its part. Then Optimizer::state()
  /// throws Error, optim::ema() gives copies, and it and AveragedWeights are calls of all ranks.
  ///
  /// 2: the sums of gradients as well. A backward pass collects them in buckets of 4 MiB, or of one
  /// larger parameter. A bucket is exchanged when the pass has added all to it and the buckets
  /// before it are gone; then a rank keeps its part. So each micro-step is a call of all ranks:
  /// all make the same number of calls of backward() or no_samples(), and if one of them throws on
  /// a rank, all throw. run_batch() and run_cycle() see to that by themselves. In exact mode
  /// weights have the same bits as with 0; else they agree to rounding.
  ///
  /// With 2, Tensor::grad() and set_grad() of a parameter, gradient_health(), and a backward() that
  /// is not the optimizer's throw Error. Parameters with hooks keep their bucket until the end of
  /// the pass. If the loss is computed by hand and throws before backward(), the other ranks wait
  /// until the deadline. Throws Error with a pipeline (Mesh::pp()).
  ///
  /// 3: the weights as well. A parameter has memory while it is read: in the call of its module, in
  /// the backward function of an operation, or outside of both until the next of these begins. All
  /// ranks then bring its bucket together, so reading weights is a call of all ranks, in evaluation
  /// too, and all run the same program: asking for other weights is an Error on every rank. In
  /// run_batch() a rank without samples runs the function on others, and adds zeros; no_samples()
  /// throws Error. Writing to weights, io::save_run() and io::load_run() are calls of all ranks
  /// too. AveragedWeights needs the memory of all weights on each rank meanwhile.
  /// optim::WholeWeights lets one rank read them alone.
  /// When the optimizer is destroyed, the weights are lost: reading them throws Error.
  int zero = 0;

  /// Whether Optimizer::run_batch() adds gradients up while the backward pass of a rank's last
  /// micro-batch goes on: in pieces of 4 MiB, or of one larger parameter, when the pass has added
  /// all to a piece. With `zero` 3, whether the bucket of weights that came next in the step before
  /// is on its way while a rank computes with this one. It takes the memory of one bucket more.
  /// Ranks on the CPU have a thread for that. It changes no bit.
  ///
  /// Unset: if ranks are on several machines, or on CUDA devices, and there is something to
  /// exchange so. Throws Error if it is set with `zero` 2, with exact mode but for `zero` 3, with a
  /// mesh that divides the model, or if MPI does not serve threads (MPI_THREAD_MULTIPLE).
  ///
  /// If the backward pass of a rank's last micro-batch throws, all throw; if it runs out of memory,
  /// all halve their micro-batches. All ranks give the same value.
  std::optional<bool> overlap = {};
};

/// From now on the optimizer's steps are those of all ranks (S40): at the end of a cycle, gradient
/// sums, losses and weights are added up over the ranks, and divided once by the weight of all. So
/// every rank makes the same decision, clips by the same norm and gets the same bits in weights,
/// state, loss scale and reports. A step is skipped on all ranks if a gradient of any of them is
/// not finite. A parameter that has a gradient on one rank has it on all.
///
/// What each rank does stays its own: backward() of its own micro-batches, of any number and size.
/// All ranks call step(), flush() and zero_grad() alike. A rank that has no samples in a cycle in
/// which others have some calls no_samples() instead of backward() (S41). run_batch() is given the
/// number of samples of all ranks: each computes the losses of its own part, the first ranks of one
/// sample more if they cannot be equal, and a rank without samples adds weight 0 by itself.
/// run_cycle() computes the same number of micro-steps on each rank.
///
/// All ranks call io::save_run(), in mid-cycle too. Rank 0 writes the file, and with `zero` each
/// rank its parts of it. A run with a cycle under way is loaded after distribute(): rank 0 then has
/// what was collected, the others nothing.
///
/// BatchNorm normalises the samples of a rank's micro-batch. With BatchNormMode::per_step the
/// running statistics are those of all ranks' samples; with per_micro_batch they are of the rank's
/// own. With whole_batch, in exact mode, samples are normalised by the batch of all ranks.
///
/// With a group of one rank the optimizer is one of one rank, as it was made, in mid-cycle too.
///
/// With a group of nccl_group(), parameters and losses are on the group's device, and gradients are
/// added up there. The rest travels over the group's host().
///
/// Throws Error if the parameters are not on the group's device, or if this rank has a part of a
/// parameter (is_divided()): then give the mesh. Throws Error, on every rank, if
/// the optimizers are not alike (kind, options, parameters), if a cycle of one is under way, or
/// without `broadcast` if a weight or a state differs, naming the first one and the rank. What one
/// rank alone refuses is a RankError on the others; the group is whole. If `broadcast` is
/// interrupted, a rank may have a part of rank 0's state. Steps throw RankError as
/// collectives do, for example if another rank has ended: weights and state are then those of the
/// last finished step, and the cycle can be dropped by zero_grad(). If run_batch() or run_cycle()
/// fails on a rank, by whatever exception, it throws on all, and all have dropped the cycle. With
/// `zero`, a rank that ends while weights are exchanged leaves those of no step: each further call
/// says so until a saved run is loaded. A step cannot be captured in a graph.
void distribute(optim::Optimizer& optimizer, const Group& group,
                const DistributeOptions& options = {});

/// The same for a mesh. Copies of the model add up their gradients, as above, over mesh.dp(). The
/// ranks of one copy (mesh.copy()) have parts of one model: each updates its own, and all make the
/// same decision. The norm that clips is that of the whole model: divided parameters count with all
/// of their parts, others once for each stage. If a gradient of any rank is not finite, no rank
/// makes the step, and every loss scale moves alike. Reports are the same on every rank, but that a
/// stage names a culprit among its own parameters, or none if it is another's.
///
/// Within a copy all ranks compute the losses of the same samples. Parameters that are not divided
/// have the same gradients on the ranks of mesh.tp(), to the bit, if the model is made of the
/// layers of firn/dist/parallel and the others draw the same random numbers. Each
/// rank of a copy has a file of its own in which its part is saved (io::save_run()).
///
/// With `zero`, the copies of a part divide its state. Throws as above. Also throws Error if the
/// parameters are not on the group's device, if a divided parameter has a rule that needs the whole
/// of it (LAMB, Muon, Adafactor, Custom), in exact mode, and if ranks of one stage do not divide
/// the same parameters. Between stages, the settings of steps and the loss scale are compared.
/// `broadcast` takes parameters that are not divided from the first rank of mesh.tp().
void distribute(optim::Optimizer& optimizer, const Mesh& mesh,
                const DistributeOptions& options = {});

/// Says that this rank has a part of a parameter, and the other ranks of tp the rest. The layers of
/// firn/dist/parallel do it for theirs. It stays when the model is converted or cloned. Throws
/// Error for an undefined tensor.
void mark_divided(const Tensor& parameter);
/// Whether it was marked. Throws Error for an undefined tensor.
bool is_divided(const Tensor& parameter);

}  // namespace firn::dist
