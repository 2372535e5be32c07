#include "durability/training.h"

#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "data/files.h"
#include "io/bits.h"

namespace firn::testing {
namespace {

data::TensorDataset samples(DType dtype) {
  Generator g(40);
  const GeneratorScope scope(g);
  return data::TensorDataset({randn({10, 6}).to(dtype), randn({10, 3}).to(dtype)});
}

std::string text_of(const Generator& g) {
  return std::to_string(g.get().seed) + ":" + std::to_string(g.get().offset) + " ";
}

}  // namespace

Training::Training(DType dtype, std::uint64_t seed)
    : dtype_(dtype), stream_(seed), noise_(seed + 1) {
  const GeneratorScope scope(stream_);
  net_ = std::make_unique<TrainingNet>();
  net_->to(dtype);
  optim::StepOptions steps{.accumulate = 2};
  if (dtype == f16)
    steps.loss_scale = optim::LossScale::dynamic({.init = 16777216, .growth_interval = 2});
  opt_ = std::make_unique<optim::Adam>(net_->named_parameters(), optim::AdamOptions{.lr = 0.01},
                                       steps);
  loader_ = std::make_unique<data::Loader>(
      samples(dtype), data::LoaderOptions{.batch = 4, .shuffle = true, .seed = 8});
}

void Training::micro_step() {
  const GeneratorScope scope(stream_);
  loader_->seek(loader_->position());  // the next batch, not a new epoch
  auto batch = loader_->begin();
  if (batch == loader_->end()) batch = loader_->begin();
  const Tensor shift = randn(batch->x().shape(), {.generator = &noise_}).to(dtype_) * 0.1;
  opt_->backward(mse_loss((*net_)(batch->x() + shift), batch->y()));
  opt_->step();
  ++done_;
}

void Training::train_until(std::int64_t count) {
  while (done_ < count) micro_step();
}

std::vector<io::RunPart> Training::parts() {
  return {*net_, *opt_, *loader_, {"noise", noise_}, {"done", done_}};
}

void Training::save(const std::string& path) {
  const GeneratorScope scope(stream_);  // the file's "rng"
  io::save_run(path, parts());
}

void Training::load(const std::string& path) {
  const GeneratorScope scope(stream_);
  io::load_run(path, parts());
}

void Training::scramble() {
  const NoGrad guard;
  for (auto& [name, t] : net_->named_parameters()) fill_(t, -7);
  stream_ = Generator(99);
  noise_ = Generator(98);
  loader_->seek({});
  done_ = -1;
}

std::string Training::bits() const {
  std::string all;
  for (const auto& [name, t] : io::state_of(*net_)) all += name + bits_of(t);
  std::vector<std::uint8_t> touched;
  for (const auto& [name, t] : opt_->state())
    if (name == "touched") touched = t.to_vector<std::uint8_t>();
  std::size_t gradients = 0;
  for (const auto& [name, t] : opt_->state()) {
    // A gradient that the cycle has not reached has no meaning.
    if (name.ends_with(".gradient") && !touched[gradients++]) continue;
    all += name + bits_of(t);
  }
  const data::LoaderPosition at = loader_->position();
  return all + text_of(stream_) + text_of(noise_) + std::to_string(at.epoch) + ":" +
         std::to_string(at.sample) + " " + std::to_string(done_);
}

FastFolder::FastFolder() {
  std::string name = "/dev/shm/firn-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    name = (std::filesystem::temp_directory_path() / "firn-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  path_ = std::filesystem::canonical(name);
}

FastFolder::~FastFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Snapshot snapshot_of(const std::filesystem::path& folder) {
  Snapshot out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out[entry.path().filename().string()] = test::read_file(entry.path().string());
  return out;
}

void restore(const std::filesystem::path& folder, const Snapshot& files) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (!files.contains(entry.path().filename().string())) std::filesystem::remove(entry.path());
  for (const auto& [name, bytes] : files) test::write_file((folder / name).string(), bytes);
}

bool is_temporary(const std::string& name) { return name.find(".tmp-") != std::string::npos; }

Snapshot without_temporaries(const Snapshot& files) {
  Snapshot out;
  for (const auto& [name, bytes] : files)
    if (!is_temporary(name)) out.emplace(name, bytes);
  return out;
}

std::size_t temporaries_in(const Snapshot& files) {
  return files.size() - without_temporaries(files).size();
}

}  // namespace firn::testing
