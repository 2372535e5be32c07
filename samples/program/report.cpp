#include "program/report.h"

#include <cstdio>
#include <memory>
#include <span>

#include "firn/firn.h"
#include "firn/train/progress.h"
#ifdef SAMPLE_HAS_OPENSSL
#include <openssl/evp.h>
#endif

namespace sample {

using firn::train::Record;

namespace {

/// Returns one line with the optimizer's description of a step and its changes in later epochs.
std::string step_summary(const Options& o, const firn::optim::Optimizer& optimizer) {
  std::string text = firn::optim::describe(optimizer, o.batch > 0 ? o.batch : o.micro_batch);
  if (o.ranks > 1) text += ", " + std::to_string(o.ranks) + " ranks";
  if (o.tensor_parallel > 1) text += ", " + std::to_string(o.tensor_parallel) + " divide a layer";
  if (o.pipeline > 1) text += ", " + std::to_string(o.pipeline) + " stages";
  constexpr const char* kSharded[] = {"", "state", "state and gradients",
                                      "state, gradients and weights"};
  if (o.zero > 0) text += std::string(", ") + kSharded[o.zero] + " divided among them";
  for (std::size_t i = 1; i < o.accumulate.size(); ++i) {
    const auto& [epoch, steps] = o.accumulate[i];
    text += "; from epoch " + std::to_string(epoch + 1) + " on " + std::to_string(o.micro_batch) +
            " x " + std::to_string(steps) + " = " + std::to_string(o.micro_batch * steps);
  }
  return text;
}

}  // namespace

void print_start(const Options& o, const Training& training, std::int64_t parameters,
                 const firn::optim::Optimizer& optimizer) {
  std::printf("data   %s\n", training.data().c_str());
  std::printf("model  %s, %s parameters\n", training.name().c_str(),
              firn::train::grouped(parameters).c_str());
  std::printf("run    %s, %s schedule, seed %llu, %s, %d threads\n", o.precision.c_str(),
              o.schedule.c_str(), static_cast<unsigned long long>(o.seed), o.device.c_str(),
              o.threads);
  std::printf("step   %s\n\n", step_summary(o, optimizer).c_str());
  std::fflush(stdout);
}

void print_graph(const std::vector<std::string>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) std::printf("%3zu  %s\n", i + 1, nodes[i].c_str());
  std::printf("%zu nodes in the graph of a step\n", nodes.size());
  std::fflush(stdout);
}

void print_error(std::string message) {
  for (char& c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  std::fprintf(stderr, "error: %s\n", message.c_str());
}

Record settings_of(const Options& o, const About& about, Training& training,
                   std::int64_t parameters, std::int64_t samples) {
  std::vector<Record> accumulate;
  for (const auto& [epoch, steps] : o.accumulate)
    accumulate.push_back(Record().add("epoch", epoch).add("steps", steps));
  Record r;
  r.add("program", about.program).add("model", training.name());
  training.describe_run(r);
  r.add("precision", o.precision)
      .add("micro_batch", o.micro_batch)
      .add("ranks", o.ranks)
      .add("tensor_parallel", o.tensor_parallel)
      .add("pipeline", o.pipeline)
      .add("exact", o.exact)
      .add("zero", o.zero)
      .add("accumulate", std::span<const Record>(accumulate))
      .add("batch", o.effective_batch(0))
      .add("loss_scale", o.loss_scale)
      .add("clip", o.clip)
      .add("ema", o.ema);
  if (o.weight_decay)
    r.add("weight_decay", *o.weight_decay);
  else
    r.add("weight_decay", std::nullopt);
  return r.add("schedule", o.schedule)
      .add("warmup", o.warmup)
      .add("lr", o.lr)
      .add("optimizer", o.optimizer)
      .add("seed", o.seed)
      .add("threads", o.threads)
      .add("device", o.device)
      .add("save", o.save)
      .add("load", o.load)
      .add("parameters", parameters)
      .add("train_samples", samples)
      .add("test_samples", std::visit([](const auto& b) { return b.samples(); }, training.tests()));
}

#ifdef SAMPLE_HAS_OPENSSL

bool can_hash() noexcept { return true; }

std::string hash_of(const firn::nn::Module& model) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const firn::Tensor& p : model.parameters()) {
    const firn::Tensor t = firn::contiguous(p.detach().to(firn::Device::cpu()));
    good = good && EVP_DigestUpdate(context.get(), t.view().data, t.bytes()) == 1;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (!good || EVP_DigestFinal_ex(context.get(), digest, &bytes) != 1)
    throw firn::Error("hash_of", "OpenSSL computed no SHA-256");
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", digest[i]);
    text += two;
  }
  return text;
}

#else

bool can_hash() noexcept { return false; }
std::string hash_of(const firn::nn::Module&) {
  throw firn::Error("hash_of", "this program was built without OpenSSL", "install libssl-dev");
}

#endif

}  // namespace sample
