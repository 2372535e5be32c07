// Data-parallel training: each rank computes the gradients of its own samples, and all ranks make
// the same steps. Rules such as S40 are in docs/semantics.md.
//
//   dist::run_local(4, [&](const dist::Group& group) {
//     manual_seed(1);                        // equal weights on every rank
//     Net net;
//     optim::AdamW opt(net.parameters(), {.lr = 1e-3});
//     dist::distribute(opt, group);
//     seed_thread(group.rank());             // other random numbers, for example for dropout
//     for (const auto& [x, y] : batches)     // equal on every rank, which computes its part
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
  /// Every rank takes over the parameters and state of rank 0's optimizer. Without it, ranks whose
  /// parameters or state differ are an error. Buffers of modules are neither copied nor compared.
  bool broadcast = false;
  /// ZeRO stage: what is sharded over the ranks (Rajbhandari et al. 2020). 0: nothing, each rank
  /// keeps all. 1: the optimizer's state, which is masters, moments and moving averages. Each rank
  /// updates its shard of the weights, and receives the others; weights have the same bits as with
  /// 0. A shard is state/ranks. The last rank also holds what the division leaves over: for each
  /// rank less than 64 bytes of weights, or 256 elements with 8-bit states. If a rule needs whole
  /// parameters (Muon, Adafactor, LAMB, Custom), a shard consists of whole ones. Throws Error for
  /// ScheduleFreeAdamW, whose weights are made from its states.
  ///
  /// While distribute() runs, a rank holds all of the state as well as its shard. Afterwards
  /// Optimizer::state() throws Error, and optim::ema() returns copies. All ranks must call
  /// optim::ema() and AveragedWeights together.
  ///
  /// 2: the gradient sums as well. A backward pass collects them in buckets of 4 MiB, or of one
  /// larger parameter. A bucket is exchanged once it is complete and all buckets before it are
  /// exchanged; then a rank keeps its shard. So all ranks make each micro-step together: all call
  /// backward() or no_samples() equally often, and if a call throws on one rank, it throws on all.
  /// run_batch() and run_cycle() ensure this. In exact mode weights have the same bits as with 0;
  /// else they agree to rounding.
  ///
  /// With 2, Tensor::grad() and set_grad() of a parameter throw Error, as do gradient_health() and
  /// any backward() but the optimizer's. Parameters with hooks keep their bucket until the end of
  /// the pass. If the loss is computed by hand and throws before backward(), the other ranks wait
  /// until the deadline. Throws Error with a pipeline (Mesh::pp()).
  ///
  /// 3: the weights as well. A rank holds a parameter only during its module's call or a backward
  /// function. A read elsewhere gathers it until the next such call. All ranks gather its bucket
  /// together. So all ranks must read the same weights in the same order, in evaluation too;
  /// reading different weights is an Error on every rank. In run_batch() a rank without samples
  /// computes a padding micro-step on samples of other ranks, and adds zeros; no_samples() throws
  /// Error. All ranks must also write to weights together, and call io::save_run() and
  /// io::load_run() together. AveragedWeights needs the memory of all weights on each rank
  /// meanwhile. optim::GatheredWeights lets one rank read them alone. When the optimizer is
  /// destroyed, the weights are lost: reading them throws Error.
  int zero = 0;

  /// True if ranks overlap communication with computation. Optimizer::run_batch() then sums
  /// gradients during the backward pass of a rank's last micro-batch. It exchanges pieces of 4 MiB,
  /// or of one larger parameter, each as soon as it is complete. With `zero` 3, a rank gathers the
  /// next bucket of weights, by the order of the step before, while it computes with this one. That
  /// takes the memory of one more bucket. Ranks on the CPU use a thread for it. Overlap changes no
  /// bit.
  ///
  /// Unset means true if ranks are on several machines, or on CUDA devices, and there is something
  /// to overlap. If true, throws Error with `zero` 2, with exact mode except for `zero` 3, and with
  /// a mesh that shards the model. Also throws if MPI does not serve threads (MPI_THREAD_MULTIPLE).
  ///
  /// If the backward pass of a rank's last micro-batch throws, all throw; if it runs out of memory,
  /// all halve their micro-batches. All ranks must give the same value.
  std::optional<bool> overlap = {};
};

/// Makes the optimizer's steps common to all ranks (S40). At the end of a cycle, gradient sums,
/// losses and weights are summed over the ranks, and divided once by the total weight. So every
/// rank makes the same decision, clips by the same norm and gets the same bits in weights, state,
/// loss scale and reports. All ranks skip a step if a gradient of any of them is not finite. A
/// parameter that has a gradient on one rank has it on all.
///
/// Each rank still calls backward() for its own micro-batches, of any number and size. All ranks
/// call step(), flush() and zero_grad() alike. A rank that has no samples in a cycle in which
/// others have some calls no_samples() instead of backward() (S41). run_batch() takes the number of
/// samples of all ranks. Each rank computes the losses of its own share; the first ranks compute
/// one sample more if shares cannot be equal, and an empty share adds weight 0. run_cycle()
/// computes the same number of micro-steps on each rank.
///
/// All ranks call io::save_run(), in mid-cycle too. Rank 0 writes the file, and with `zero` each
/// rank writes its shards. Load a run with a cycle under way after distribute(): rank 0 then has
/// the collected gradients, the others nothing.
///
/// BatchNorm normalises the samples of a rank's micro-batch. With BatchNormMode::per_step the
/// running statistics come from all ranks' samples; with per_micro_batch from the rank's own. With
/// whole_batch, in exact mode, samples are normalised by the batch of all ranks.
///
/// A group of one rank makes the optimizer local again, as it was before distribute(), in mid-cycle
/// too. Throws Error if the optimizer's state is sharded over ranks.
///
/// With a group of nccl_group(), parameters and losses are on the group's device, and gradients are
/// summed there. Other data travels over the group's host().
///
/// Throws Error if the parameters are not on the group's device, or if this rank has a shard of a
/// parameter (is_sharded()): then give the mesh. Throws Error on every rank if the optimizers
/// differ (kind, options, parameters and their memory formats), or if one has a cycle under way.
/// Without `broadcast` it also throws if a weight or a state differs, naming the first one and the
/// rank. If only one rank throws an Error, or has no memory, the others throw RankError, and the
/// group stays usable. The optimizers are then as before the call. Only if the group breaks while
/// it broadcasts, a rank may have received some of rank 0's state.
///
/// Steps throw RankError as collectives do, for example if another rank has ended. Weights and
/// state are then those of the last finished step, and zero_grad() drops the cycle. If run_batch()
/// or run_cycle() fails on a rank, by whatever exception, it throws on all, and all have dropped
/// the cycle. With `zero`, a rank that ends while weights are exchanged leaves the weights invalid:
/// each further call throws until a saved run is loaded. A step cannot be captured in a graph.
void distribute(optim::Optimizer& optimizer, const Group& group,
                const DistributeOptions& options = {});

/// Makes the optimizer's steps common to all ranks of a mesh. Copies of the model sum their
/// gradients over mesh.dp(), as above. The ranks of one copy (mesh.copy()) have shards or stages of
/// one model: each updates its own, and all make the same decision. Clipping uses the norm of the
/// whole model: sharded parameters count with all of their shards, others once for each stage. If a
/// gradient of any rank is not finite, no rank makes the step, and every loss scale moves alike.
/// Reports are the same on every rank, with one exception: a stage names a culprit only among its
/// own parameters.
///
/// Within a copy all ranks compute the losses of the same samples. Parameters that are not sharded
/// have the same gradients on the ranks of mesh.tp(), to the bit, under two conditions. The model
/// uses the layers of firn/dist/parallel, and its other layers draw the same random numbers. Each
/// rank of a copy saves its shard in a file of its own (io::save_run()).
///
/// With `zero`, the copies of a shard divide its state among them. Throws as above. Also throws
/// Error if the parameters are not on the group's device, in exact mode, and if ranks of one stage
/// shard different parameters. Throws Error for a sharded parameter whose rule needs the whole
/// parameter (LAMB, Muon, Adafactor, Custom). Stages compare the settings of steps and the loss
/// scale. `broadcast` takes parameters that are not sharded from the first rank of mesh.tp().
void distribute(optim::Optimizer& optimizer, const Mesh& mesh,
                const DistributeOptions& options = {});

/// Marks `parameter` as sharded: this rank has one shard, and the other ranks of tp have the rest.
/// The layers of firn/dist/parallel mark theirs. Converting or cloning the model keeps the mark.
/// Throws Error for an undefined tensor.
void mark_sharded(const Tensor& parameter);
/// Returns true if `parameter` was marked as sharded. Throws Error for an undefined tensor.
bool is_sharded(const Tensor& parameter);

}  // namespace firn::dist
