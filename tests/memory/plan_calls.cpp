// A plan changes nothing: each public call that changes something is made within one, and all is
// compared before and after. The calls are those that the public headers declare. They are made on
// objects from before the plan; what a constructor writes to files is compared too.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "firn/memory/plan.h"
#include "firn/runtime/kernel_support.h"
#include "memory/planned_world.h"
#include "memory/public_calls.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using World = PlannedWorld;

struct Call {
  std::vector<std::string> names;  ///< as changing_calls() has them
  std::function<void(World& w)> make;
  bool refused = false;  ///< a plan throws Error
};

std::vector<Call> calls_on_elements() {
  using Unary = Tensor& (*)(Tensor&);
  const std::map<std::string, Unary> unary = {{"abs_", abs_},
                                              {"acos_", acos_},
                                              {"acosh_", acosh_},
                                              {"asin_", asin_},
                                              {"asinh_", asinh_},
                                              {"atan_", atan_},
                                              {"atanh_", atanh_},
                                              {"ceil_", ceil_},
                                              {"cos_", cos_},
                                              {"cosh_", cosh_},
                                              {"erf_", erf_},
                                              {"erfc_", erfc_},
                                              {"exp2_", exp2_},
                                              {"exp_", exp_},
                                              {"expm1_", expm1_},
                                              {"floor_", floor_},
                                              {"gelu_", gelu_},
                                              {"gelu_tanh_", gelu_tanh_},
                                              {"log10_", log10_},
                                              {"log1p_", log1p_},
                                              {"log2_", log2_},
                                              {"log_", log_},
                                              {"logsigmoid_", logsigmoid_},
                                              {"mish_", mish_},
                                              {"neg_", neg_},
                                              {"reciprocal_", reciprocal_},
                                              {"relu_", relu_},
                                              {"round_", round_},
                                              {"rsqrt_", rsqrt_},
                                              {"selu_", selu_},
                                              {"sigmoid_", sigmoid_},
                                              {"sign_", sign_},
                                              {"silu_", silu_},
                                              {"sin_", sin_},
                                              {"sinh_", sinh_},
                                              {"softplus_", softplus_},
                                              {"softsign_", softsign_},
                                              {"sqrt_", sqrt_},
                                              {"square_", square_},
                                              {"tan_", tan_},
                                              {"tanh_", tanh_},
                                              {"trunc_", trunc_},
                                              {"hardsigmoid_", hardsigmoid_},
                                              {"hardswish_", hardswish_}};
  std::vector<Call> all;
  for (const auto& [name, op] : unary)
    all.push_back({{name}, [op = op](World& w) { op(w.number); }});
  const std::vector<Call> others = {
      {{"bitwise_not_"}, [](World& w) { bitwise_not_(w.integers); }},
      {{"celu_"}, [](World& w) { celu_(w.number); }},
      {{"elu_"}, [](World& w) { elu_(w.number); }},
      {{"leaky_relu_"}, [](World& w) { leaky_relu_(w.number); }},
      {{"hardtanh_"}, [](World& w) { hardtanh_(w.number); }},
      {{"hardshrink_"}, [](World& w) { hardshrink_(w.number); }},
      {{"softshrink_"}, [](World& w) { softshrink_(w.number); }},
      {{"threshold_"}, [](World& w) { threshold_(w.number, 1, 2); }},
      {{"clamp_"}, [](World& w) { clamp_(w.number, 1, 2); }},
      {{"clamp_min_"}, [](World& w) { clamp_min_(w.number, 1); }},
      {{"clamp_max_"}, [](World& w) { clamp_max_(w.number, 0.25); }},
      {{"nan_to_num_"}, [](World& w) { nan_to_num_(w.number); }},
      {{"masked_fill_"}, [](World& w) { masked_fill_(w.number, w.mask, 3); }},
      {{"add_"}, [](World& w) { add_(w.number, w.other_leaf), add_(w.number, 1.0); }},
      {{"sub_"}, [](World& w) { sub_(w.number, w.other_leaf), sub_(w.number, 1.0); }},
      {{"mul_"}, [](World& w) { mul_(w.number, w.other_leaf), mul_(w.number, 2.0); }},
      {{"div_"}, [](World& w) { div_(w.number, w.other_leaf), div_(w.number, 2.0); }},
      {{"Tensor::operator+="}, [](World& w) { w.number += 1.0, w.number += w.other_leaf; }},
      {{"Tensor::operator-="}, [](World& w) { w.number -= 1.0, w.number -= w.other_leaf; }},
      {{"Tensor::operator*="}, [](World& w) { w.number *= 2.0, w.number *= w.other_leaf; }},
      {{"Tensor::operator/="}, [](World& w) { w.number /= 2.0, w.number /= w.other_leaf; }},
      {{"fill_", "Tensor::fill_"}, [](World& w) { fill_(w.number, 7), w.number.fill_(8); }},
      {{"zero_", "Tensor::zero_"}, [](World& w) { zero_(w.number), w.number.zero_(); }},
      {{"copy_", "Tensor::copy_"},
       [](World& w) { copy_(w.number, w.leaf.detach()), w.number.copy_(w.leaf.detach()); }},
      {{"uniform_"}, [](World& w) { uniform_(w.number, 0, 1, w.generator); }},
      {{"normal_"}, [](World& w) { normal_(w.number, 0, 1, w.generator); }},
      {{"nn::init::constant_", "nn::init::ones_", "nn::init::zeros_"},
       [](World& w) {
         nn::init::constant_(w.number, 3), nn::init::ones_(w.number), nn::init::zeros_(w.number);
       }},
      {{"nn::init::uniform_", "nn::init::normal_", "nn::init::trunc_normal_"},
       [](World& w) {
         nn::init::uniform_(w.number), nn::init::normal_(w.number, 0, 1, w.generator);
         nn::init::trunc_normal_(w.number);
       }},
      {{"nn::init::xavier_uniform_", "nn::init::xavier_normal_", "nn::init::kaiming_uniform_",
        "nn::init::kaiming_normal_", "nn::init::orthogonal_"},
       [](World& w) {
         nn::init::xavier_uniform_(w.x), nn::init::xavier_normal_(w.x, 1, w.generator);
         nn::init::kaiming_uniform_(w.x), nn::init::kaiming_normal_(w.x),
             nn::init::orthogonal_(w.x);
       }},
      {{"copy_bytes", "copy_bytes_async", "zero_bytes"}, [](World& w) {
         void* const to = w.number.mutable_view().data;
         const void* const from = w.leaf.view().data;
         copy_bytes(to, default_device(), from, default_device(), w.number.bytes());
         copy_bytes_async(to, default_device(), from, default_device(), w.number.bytes());
         zero_bytes(to, default_device(), w.number.bytes());
       }}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::vector<Call> calls_on_graphs() {
  return {{{"backward", "Tensor::backward"},
           [](World& w) { backward(sum(w.leaf * 3.0)), sum(w.leaf).backward(); }},
          {{"Loss::backward"}, [](World& w) { mse_loss(w.leaf, w.other_leaf).backward(); }},
          {{"Tensor::set_grad"}, [](World& w) { w.leaf.set_grad(w.number); }},
          {{"Tensor::set_grad"}, [](World& w) { w.leaf.set_grad({}); }},
          {{"Tensor::set_grad"}, [](World& w) { w.net.in.weight.set_grad({}); }},
          {{"Tensor::set_requires_grad"}, [](World& w) { w.other_leaf.set_requires_grad(); }},
          {{"Tensor::set_requires_grad"}, [](World& w) { w.leaf.set_requires_grad(false); }},
          {{"add_hook"},
           [](World& w) {
             const auto count = [&w](const Tensor&) {
               w.hooked += 100;
               return Tensor();
             };
             add_hook(w.leaf, count), add_hook(w.activation, count);
           }},
          {{"remove_hook"}, [](World& w) { remove_hook(w.leaf, w.leaf_hook); }}};
}

std::vector<Call> calls_on_modules() {
  const auto hook = [](World& w) {
    return [&w](nn::Module&, const nn::CallTensors&) { w.module_hooked += 100; };
  };
  return {{{"Module::train"}, [](World& w) { w.net.train(false); }},
          {{"Module::eval"}, [](World& w) { w.net.eval(), w.blocks.eval(); }},
          {{"Module::set_autocast"}, [](World& w) { w.net.set_autocast(bf16); }},
          {{"Module::set_checkpoint"}, [](World& w) { w.net.set_checkpoint(CheckpointOptions{}); }},
          {{"Module::set_requires_grad"}, [](World& w) { w.blocks.set_requires_grad(false); }},
          {{"Module::zero_grad"}, [](World& w) { w.blocks.zero_grad(); }},
          {{"Module::copy_from"},
           [](World& w) {
             const auto other = nn::clone(w.net);
             w.net.copy_from(other);
           }},
          {{"Module::apply"},
           [](World& w) {
             w.blocks.apply([](nn::Module& m) {
               if (auto* linear = dynamic_cast<nn::Linear*>(&m)) nn::init::zeros_(linear->weight);
             });
           }},
          {{"Module::to"}, [](World& w) { w.blocks.to(f64); }, true},
          {{"Module::to"}, [](World& w) { w.net.to(Device::cpu()), w.net.to(f32); }, true},
          {{"Module::add_forward_pre_hook"},
           [hook](World& w) { w.blocks.add_forward_pre_hook(hook(w)); }},
          {{"Module::add_forward_hook"},
           [](World& w) {
             w.blocks.add_forward_hook([&w](nn::Module&, const nn::CallTensors&,
                                            const nn::CallTensors&) { w.module_hooked += 100; });
           }},
          {{"Module::remove_hook"}, [](World& w) { w.blocks.remove_hook(w.module_hook); }},
          {{"nn::checkpoint_blocks"}, [](World& w) { nn::checkpoint_blocks(w.blocks); }},
          {{"nn::checkpoint_modules"},
           [](World& w) { nn::checkpoint_modules(w.blocks, {"blocks.1"}); }},
          {{"nn::checkpoint_nothing"},
           [](World& w) { nn::checkpoint_blocks(w.blocks), nn::checkpoint_nothing(w.blocks); }},
          {{"nn::checkpoint_within"},
           [](World& w) { nn::checkpoint_within(w.blocks, 1, [] {}); },
           true},
          {{"nn::convert_batch_norm", "BatchNorm::set_accumulation"},
           [](World& w) { nn::convert_batch_norm(w.blocks, nn::BatchNormMode::per_step); },
           true},
          {{"nn::convert_to_group_norm"},
           [](World& w) { nn::convert_to_group_norm(w.blocks, 2); },
           true},
          {{"BatchNorm::become_group_norm"},
           [](World& w) { w.blocks.norm.become_group_norm(2); },
           true},
          {{"batch_norm"},
           [](World& w) {
             Moments moments{w.blocks.norm.running_mean, w.blocks.norm.running_var};
             batch_norm(w.x, {}, {}, 1e-5, &moments);
           }},
          {{"dropout"}, [](World& w) { dropout(w.x, 0.5, true, w.generator); }}};
}

std::vector<Call> calls_on_optimizers() {
  const auto batch = [](World& w) {
    return [&w](std::int64_t first, std::int64_t last) { return w.loss(first, last); };
  };
  return {
      {{"Optimizer::backward"}, [](World& w) { w.opt->backward(w.loss()); }},
      {{"Optimizer::step"}, [](World& w) { w.train(); }},
      {{"Optimizer::step"},
       [](World& w) {
         for (int i = 0; i < 5; ++i) w.train();
       }},
      {{"Optimizer::step"}, [](World& w) { w.opt->flush(), w.opt->step(); }},
      {{"Optimizer::flush"}, [](World& w) { w.opt->flush(); }},
      {{"Optimizer::flush"}, [](World& w) { w.opt->flush(optim::Partial::drop); }},
      {{"Optimizer::zero_grad"}, [](World& w) { w.opt->zero_grad(); }},
      {{"Optimizer::no_samples"}, [](World& w) { w.opt->no_samples(); }},
      {{"Optimizer::run_batch"},
       [batch](World& w) { w.opt->zero_grad(), w.opt->run_batch(8, 4, batch(w)); }},
      {{"Optimizer::run_batch"},
       [batch](World& w) {
         w.opt->zero_grad(), w.opt->run_batch(8, optim::MicroBatch{.size = 4}, batch(w));
       }},
      {{"Optimizer::run_cycle"},
       [](World& w) {
         w.opt->zero_grad();
         w.opt->run_cycle(2, [&w](std::int64_t) { return w.loss(); });
       }},
      {{"Optimizer::step_two_pass"},
       [](World& w) {
         w.opt->zero_grad();
         w.opt->step_two_pass(
             2, [&w](std::int64_t i) { return w.net(w.x.slice(0, 4 * i, 4 * i + 4).to(f16)); },
             [&w](const Tensor& all) { return cross_entropy(all, w.y); });
       }},
      {{"Optimizer::set_epoch"}, [](World& w) { w.opt->zero_grad(), w.opt->set_epoch(3); }},
      {{"Optimizer::set_lr"}, [](World& w) { w.opt->set_lr(0.5); }},
      {{"Optimizer::set_lr"}, [](World& w) { w.opt->set_lr(optim::cosine(0.1, 10)); }},
      {{"Optimizer::set_loss_scale"}, [](World& w) { w.opt->set_loss_scale(64); }},
      {{"LossScaler::set_scale"}, [](World& w) { w.scaler->set_scale(64); }},
      {{"Optimizer::refresh_masters"}, [](World& w) { w.opt->refresh_masters(); }},
      {{"Optimizer::restore_on_retry"}, [](World& w) { w.opt->restore_on_retry({w.number}); }},
      {{"Optimizer::step"},  // a state that is copied in
       [](World& w) {
         for (const auto& [name, t] : w.opt->state()) copy_(t, zeros_like(t));
         w.train();
       }},
      {{"optim::step_all", "optim::flush_all"},
       [](World& w) { optim::step_all({w.shared.get()}), optim::flush_all({w.shared.get()}); }},
      {{"optim::plan_within"},
       [batch](World& w) { optim::plan_within(1 << 30, *w.opt, w.blocks, 8, batch(w)); },
       true},
      {{"plan_memory"}, [](World& w) { plan_memory([&w] { w.train(); }); }, true},
      {{"Plateau::observe"}, [](World& w) { w.plateau.observe(5), w.plateau.observe(6); }},
      {{"Step::reset"},
       [](World& w) {
         graph::Step step(*w.opt, [&w] { w.train(); });
         step();
         step.reset();
       },
       true},
      {{"dist::distribute"}, [](World& w) { dist::distribute(*w.opt, dist::Group()); }, true},
      {{"dist::mark_sharded"}, [](World& w) { dist::mark_sharded(w.leaf); }},
      {{"RollbackPoint::roll_back"},
       [](World& w) {
         RollbackPoint start;
         w.train(), w.blocks(w.x);
         start.roll_back();
       }},
      {{"RollbackPoint::roll_back"}, [](World& w) { w.start->roll_back(); }, true},
      {{"RollbackPoint::roll_back"}, [](World& w) { w.start->roll_back(Rollback::data); }, true}};
}

std::vector<Call> calls_on_data() {
  const auto path = [](World& w) { return w.folder.file("file"); };
  return {
      {{"Loader::seek"},
       [](World& w) {
         w.loader->seek({2, 4});
       }},
      {{"Loader::begin", "Loader::Iterator::operator++"},
       [](World& w) {
         auto it = w.loader->begin();
         ++it;
       }},
      {{"Loader::epoch"},
       [](World& w) {
         for (auto& b : w.loader->epoch(1)) w.blocks.eval(), (void)b;
       }},
      {{"ResidentBatches::begin_epoch"}, [](World& w) { w.batches->begin_epoch(2); }},
      {{"ResidentBatches::next"}, [](World& w) { w.batches->next(), w.batches->next(1); }},
      {{"ResidentBatches::seek"},
       [](World& w) {
         w.batches->seek({1, 4});
       }},
      {{"SumMetric::update", "Metric::update", "Metric::update_from"},
       [](World& w) {
         w.accuracy.update(randn({8, 3}), w.y), w.accuracy.update_from(w.x, randn({8, 3}), w.y);
       }},
      {{"SumMetric::reset", "Metric::reset"},
       [](World& w) { w.accuracy.reset(), w.confusion.reset(); }},
      {{"SumMetric::combine", "Metric::combine"}, [](World& w) { w.accuracy.combine({}); }},
      {{"Auroc::update"}, [](World& w) { w.auroc.update(randn({8}), minimum(w.y, 1)); }},
      {{"Auroc::reset"}, [](World& w) { w.auroc.reset(); }},
      // They read how many samples other ranks have, which is 0 in a plan.
      {{"Auroc::combine"}, [](World& w) { w.auroc.combine({}); }, true},
      {{"Mistakes::combine"}, [](World& w) { w.mistakes.combine({}); }, true},
      {{"Mistakes::update", "Mistakes::update_from"},
       [](World& w) {
         w.mistakes.update_from(w.x, randn({8, 3}), w.y);
       }},
      {{"Mistakes::reset"}, [](World& w) { w.mistakes.reset(); }},
      {{"MeanLoss::add"}, [](World& w) { w.mean.add(w.loss()); }},
      {{"io::save_run", "io::write_npy"},
       [path](World& w) { io::save_run(path(w), {*w.opt}); },
       true},
      {{"io::write_npy"}, [path](World& w) { io::write_npy(path(w), w.x); }, true},
      {{"io::save_safetensors"},
       [path](World& w) { io::save_safetensors(path(w), io::state_of(w.net)); },
       true},
      {{"io::export_onnx"}, [path](World& w) { io::export_onnx(path(w), w.blocks, w.x); }, true},
      {{"data::write_tokens"},
       [path](World& w) {
         data::write_tokens(path(w), std::vector<std::int64_t>{1, 2});
       },
       true},
      {{"RecordWriter::write"}, [](World& w) { w.records->write({w.x}); }, true},
      {{"RecordWriter::finish"}, [](World& w) { w.records->finish(); }, true},
      {{"RecordWriter::write"}, [path](World& w) { const data::RecordWriter made(path(w)); }, true},
      {{"Checkpoints::save"}, [](World& w) { w.checkpoints->save(1, {*w.opt}); }, true},
      {{"Checkpoints::discard_after"}, [](World& w) { w.checkpoints->discard_after(0); }, true},
      {{"Checkpoints::save"}, [path](World& w) { const io::Checkpoints made(path(w)); }, true},
      {{"RunLog::write"}, [](World& w) { w.log->write(train::Record("note")); }, true},
      {{"RunLog::write"}, [path](World& w) { const train::RunLog made(path(w)); }, true},
      {{"train::fit"},
       [](World& w) {
         train::fit({.optimizers = {{"", *w.opt}}}, *w.loader, [](const data::LoaderBatch&) {});
       },
       true}};
}

std::vector<Call> calls_on_the_process() {
  return {{{"Generator::reserve", "runtime::reserve_random", "bernoulli", "randperm"},
           [](World& w) {
             runtime::reserve_random(w.generator, default_device(), 100);
             bernoulli(full({3}, 0.5), w.generator);
             randperm(5, w.generator);
           }},
          {{"categorical", "multinomial"},
           [](World& w) {
             categorical(w.x, w.generator);
             multinomial(abs(w.x), 2, false, w.generator);
           }},
          {{"rand_like", "randn_like"},
           [](World& w) { rand_like(w.x, w.generator), randn_like(w.x, w.generator); }},
          {{"manual_seed"}, [](World&) { manual_seed(99); }},
          {{"seed_thread"}, [](World&) { seed_thread(7); }},
          {{"set_num_threads"}, [](World&) { set_num_threads(num_threads() + 1); }},
          {{"allow_tf32"}, [](World&) { allow_tf32(true); }},
          {{"allow_bf16x3"}, [](World&) { allow_bf16x3(true); }},
          {{"allow_nondeterministic"}, [](World&) { allow_nondeterministic(true); }},
          {{"require_batch_invariance"}, [](World&) { require_batch_invariance(true); }},
          {{"set_memory_limit"}, [](World&) { set_memory_limit(std::size_t{1} << 40); }},
          {{"reset_peak_memory"}, [](World&) { reset_peak_memory(); }},
          {{"release_cached_memory"}, [](World&) { release_cached_memory(); }}};
}

std::vector<Call> all_calls() {
  std::vector<Call> all;
  for (const auto& part : {calls_on_elements(), calls_on_graphs(), calls_on_modules(),
                           calls_on_optimizers(), calls_on_data(), calls_on_the_process()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Calls that are not made here, by why.
const std::map<std::string, std::vector<std::string>> kLeftOut = {
    {"the program's own object, which no state of firn depends on",
     {"CallTensors::add",
      "Error::set_module",
      "Generator::set",
      "Index::requires",
      "ModuleOf::requires",
      "AnyModule::requires",
      "Dims::requires",
      "ParamList::push_back",
      "Schedule::append",
      "StepReport::note_cut",
      "Record::add",
      "Record::add_json",
      "Progress::update",
      "Progress::finish",
      "Event::record",
      "Event::block",
      "Ref::reset",
      "RefCounted::retain",
      "Confusion::add_details",
      "Metric::add_details",
      "Mistakes::add_details",
      "operator+=",
      "optim::lambda_schedule",
      "MetricList::push_back"}},
    {"builds a model, as an assignment does",
     {"Sequential::push_back", "Sequential::requires", "ModuleDict::set", "ModuleDict::remove",
      "RecurrentWeights::at"}},
    {"visits members, and changes none",
     {"AnyModule::visit", "Module::named_modules", "Module::visit_members",
      "ModuleDict::visit_members", "RecurrentWeights::visit", "Sequential::visit_members",
      "SpectralNorm::visit_members", "WeightNorm::visit_members", "MemberVisitor::buffer",
      "MemberVisitor::generator", "MemberVisitor::module", "MemberVisitor::own_module",
      "MemberVisitor::own_slot", "MemberVisitor::parameter"}},
    {"waits, reads or says something, and changes nothing",
     {"Checkpoints::wait", "Event::synchronize", "synchronize", "require_device", "warn",
      "data::read_csv_pieces", "Profile::write_trace", "ResidentBatches::set_size"}},
    {"is of the process for good: a handler of warnings, a profile",
     {"set_warning_handler", "Profile::stop", "runtime::start_spans"}},
    {"for kernels and for the library, whose callers have these tests",
     {"MemoryBlock::allocate",
      "MemoryBlock::made_by",
      "MemoryBlock::release",
      "Span::runs",
      "Storage::bump_version",
      "Storage::come",
      "Storage::fetch",
      "Storage::go",
      "Storage::hold_place",
      "Storage::set_provider",
      "Storage::let_place_go",
      "Storage::made_by",
      "Storage::mark_saved",
      "Storage::move_into",
      "Storage::record_use",
      "StorageProvider::fetch",
      "runtime::at_dry_end",
      "runtime::before_change",
      "runtime::about_to_draw",
      "runtime::forget_change",
      "runtime::begin_points_anew",
      "Generator::place",
      "runtime::check_cuda",
      "runtime::end_operation",
      "runtime::end_range",
      "runtime::note_counter",
      "runtime::note_kernel",
      "runtime::on_abandon",
      "runtime::on_replay",
      "runtime::refuse_capture",
      "runtime::throw_cuda_error"}},
    {"tested elsewhere: files in tests/memory/plan.cpp, graphs there too, ranks in tests/dist, "
     "folders of language models in tests/lm",
     {"io::load_run",
      "io::load_safetensors",
      "lm::load",
      "lm::save",
      "Checkpoints::resume",
      "Graph::replay",
      "Group::all_gather",
      "Group::all_reduce",
      "Group::all_to_all",
      "Group::barrier",
      "Group::broadcast",
      "Group::recv",
      "Group::reduce_scatter",
      "Group::send",
      "Group::send_recv",
      "Pipeline::infer",
      "Pipeline::run_batch",
      "dist::run_local",
      "io::delete_dlpack",
      "io::from_dlpack",
      "io::from_unversioned_dlpack",
      "io::to_dlpack",
      "io::to_unversioned_dlpack"}},
    {"tested elsewhere: language models in tests/lm/models_training.cpp",
     {"Gpt2::loss", "Llama::loss"}},
    {"of texts, files and ids alone, without a tensor",
     {"Gpt2Config::check", "LlamaConfig::check", "StreamDecoder::finish", "StreamDecoder::push",
      "Tokenizer::encode_to", "Tokenizer::save", "lm::train_bpe"}},
    {"an interface: train::fit() implements it", {"Loop::stop", "Loop::write"}}};

}  // namespace

TEST_CASE(
    "[S38] every public call that changes something is made in a plan, or left out with a "
    "reason",
    "[memory][host]") {
  std::set<std::string> known;
  for (const Call& call : all_calls()) known.insert(call.names.begin(), call.names.end());
  for (const auto& [why, names] : kLeftOut) {
    for (const std::string& name : names) {
      CAPTURE(name, why);
      CHECK(known.insert(name).second);
    }
  }
  const std::set<std::string> declared = changing_calls();
  CHECK(declared.size() > 250);
  for (const std::string& name : declared) {
    CAPTURE(name);
    CHECK(known.contains(name));
  }
  for (const std::string& name : known) {
    CAPTURE(name);
    CHECK(declared.contains(name));
  }
}

TEST_CASE("the list of calls is that of a header", "[memory][host]") {
  CHECK(changing_calls_in("namespace firn::nn {\n"
                          "namespace detail { void hidden(); }\n"
                          "class A : public B {\n public:\n  A();\n  ~A();\n  int f() const;\n"
                          "  void g();  ///< void h();\n  int k(int = f({})) { return 2; }\n"
                          "  void put() const;\n  static int s();\n"
                          "  std::function<void(int)> field = {};\n"
                          " private:\n  void secret();\n};\n"
                          "#define M(x) void x();\n"
                          "int fill_(const Tensor& x);\nint pure(const Tensor& x, int n);\n"
                          "int change(const A& a, Tensor& x);\nvoid nothing();\n}\n") ==
        std::set<std::string>{"A::g", "A::k", "A::put", "nn::change", "nn::fill_", "nn::nothing"});
}

TEST_CASE("[S38] a plan of any public call changes nothing, then and later", "[memory][host]") {
  const std::vector<std::string> expected = World().later();
  for (const Call& call : all_calls()) {
    World w;
    w.seen();
    const std::vector<std::string> before = w.seen();
    std::string refusal;
    {
      const NoGrad guard;  // operations in place are not recorded
      try {
        plan_memory([&] {
          const EnableGrad records;
          if (call.names[0].ends_with('_') || call.names[0].starts_with("Tensor::operator")) {
            const NoGrad none;
            call.make(w);
          } else {
            call.make(w);
          }
        });
      } catch (const Error& e) {
        refusal = e.what();
      }
    }
    CAPTURE(call.names[0], refusal);
    CHECK(refusal.empty() != call.refused);
    const std::vector<std::string> after = w.seen(), later = w.later();
    const auto differs = [](const auto& a, const auto& b) {
      const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      return x == a.end() && y == b.end()
                 ? std::string()
                 : (x == a.end() ? "" : *x) + "\n  and\n" + (y == b.end() ? "" : *y);
    };
    CHECK(differs(before, after) == "");
    CHECK(differs(expected, later) == "");
  }
}

}  // namespace firn::testing
