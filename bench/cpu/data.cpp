// Speed of the input and the saving of a training: loaders, records, checkpoints.
//   bench_data loader|checkpoint [--threads N] [--quick]
// loader: 60,000 u8 images of 28x28 with labels, in batches of 128. In `augmented`, a Loader with
// --threads workers crops, mirrors and converts them to f32; in `resident`, ResidentBatches do so
// on --threads threads. `gathered` images come as bytes. `records` reads them in order from files
// in the page cache and checks each CRC-32, with one thread; `mapped` reads from maps of these
// files. `memcpy` copies as many bytes with one thread. `waited` is the share of its time that an
// MLP's training spends in the loader, with one worker. checkpoint: GPT-2's number of parameters
// with Adam, 1.5 GB. `disk` writes as many bytes in pieces of 1 MiB and calls fsync(), in the same
// folder: $TMPDIR, or /tmp. Both write new files, since removing an old one can take as long as
// writing it. `copied` is the time that an asynchronous save takes from the training; `load` reads,
// checks and restores.
#include <fcntl.h>
#include <firn/firn.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "../harness.h"

using namespace firn;

namespace {

constexpr std::int64_t kBatch = 128, kImageBytes = 28 * 28;

/// Returns `amount` divided by the seconds of each call.
template <class Fn>
std::vector<double> rates(int repeats, double amount, Fn&& fn) {
  std::vector<double> values;
  for (int r = 0; r < repeats; ++r) {
    const double start = bench::seconds();
    fn(r);
    values.push_back(amount / (bench::seconds() - start));
  }
  return values;
}

void loaders(const bench::Options& options) {
  const std::int64_t n = options.quick ? 6000 : 60000;
  const int repeats = options.repeats();
  const auto count = static_cast<double>(n);
  const Tensor images = (rand({n, 28, 28}) * 255.0).to(u8), labels = zeros({n}, i64);

  const data::ImageDataset pictures(data::LabelledImages{images, labels},
                                    {.augment = {.crop_padding = 2, .flip = 0.5}});
  data::Loader augmented(pictures, {.batch = kBatch, .shuffle = true, .workers = options.threads});
  bench::report("loader.augmented", "images/s", rates(repeats, count, [&](int epoch) {
                  for (const auto& batch : augmented.epoch(epoch)) static_cast<void>(batch);
                }));
  data::ResidentBatches stored(pictures, {.batch = kBatch, .shuffle = true});
  bench::report("loader.resident", "images/s", rates(repeats, count, [&](int epoch) {
                  stored.begin_epoch(epoch);
                  while (stored.remaining() > 0) stored.next();
                }));

  const data::TensorDataset set({images, labels});
  data::Loader gathered(set, {.batch = kBatch, .shuffle = true, .workers = options.threads});
  bench::report("loader.gathered", "images/s", rates(repeats, count, [&](int epoch) {
                  for (const auto& batch : gathered.epoch(epoch)) static_cast<void>(batch);
                }));

  const bench::Folder folder;
  data::RecordWriter out(folder.file("set"));
  for (std::int64_t i = 0; i < n; ++i) out.write({images.select(0, i)});
  out.finish();
  data::Loader records(data::RecordDataset(folder.file("set")), {.batch = kBatch});
  const double gigabytes = count * kImageBytes / 1e9;
  bench::report("loader.records", "GB/s", rates(repeats, gigabytes, [&](int epoch) {
                  for (const auto& batch : records.epoch(epoch)) static_cast<void>(batch);
                }));
  data::Loader mapped(data::RecordDataset(folder.file("set"), {.map = true}), {.batch = kBatch});
  bench::report("loader.mapped", "GB/s", rates(repeats, gigabytes, [&](int epoch) {
                  for (const auto& batch : mapped.epoch(epoch)) static_cast<void>(batch);
                }));
  const Tensor copy = empty({n, 28, 28}, u8);
  bench::report("loader.memcpy", "GB/s", rates(repeats, gigabytes, [&](int) {
                  std::memcpy(copy.data<std::uint8_t>(), images.data<std::uint8_t>(),
                              images.bytes());
                }));

  nn::MLP net({kImageBytes, 512, 512, 10});
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  data::Loader fed(set, {.batch = kBatch, .shuffle = true, .workers = 1});
  std::vector<double> waited;
  for (int epoch = 0; epoch < (options.quick ? 1 : 3); ++epoch) {
    const double start = bench::seconds(), before = fed.stats().waited;
    for (const auto& batch : fed.epoch(epoch)) {
      const Tensor x = batch.x().to(f32).reshape({batch.size(), kImageBytes}) * (1.0 / 255);
      opt.backward(cross_entropy(net(x), batch.y()));
      opt.step();
    }
    waited.push_back(100 * (fed.stats().waited - before) / (bench::seconds() - start));
  }
  bench::report("loader.waited", "%", waited);
}

/// Writes a file as dd conv=fsync does.
void write_plainly(const std::string& path, std::size_t bytes) {
  const std::vector<char> piece(1 << 20, 'x');
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (std::size_t at = 0; at < bytes && fd >= 0;) {
    const ssize_t n = ::write(fd, piece.data(), std::min(piece.size(), bytes - at));
    if (n <= 0) throw std::runtime_error("the disk takes no more");
    at += static_cast<std::size_t>(n);
  }
  if (fd < 0 || ::fsync(fd) != 0 || ::close(fd) != 0) throw std::runtime_error("cannot write");
}

void checkpoints(const bench::Options& options) {
  const std::int64_t width = options.quick ? 256 : 768, layers = options.quick ? 2 : 24;
  const bench::Folder folder;
  // The net has 124 million parameters in matrices like GPT-2's.
  std::vector<nn::Linear> net;
  std::vector<Tensor> parameters;
  for (std::int64_t i = 0; i < layers; ++i) {
    net.emplace_back(width, 4 * width);
    net.emplace_back(4 * width, width);
  }
  net.emplace_back(width, options.quick ? 1000 : 13650);
  for (const nn::Linear& layer : net)
    for (const Tensor& p : layer.parameters()) parameters.push_back(p);
  optim::Adam opt(parameters, {.lr = 1e-3});
  const std::vector<io::RunPart> run = {opt};
  const std::string path = folder.file("run.safetensors");
  io::save_run(path, run);
  const auto bytes = std::filesystem::file_size(path);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const int repeats = options.quick ? 1 : 3;
  bench::report("checkpoint.size", "GB", {gigabytes});
  // The measurements alternate, since a disk's speed changes from minute to minute.
  std::vector<double> disk, save, load, copied;
  for (int r = 0; r < repeats; ++r) {
    std::filesystem::remove(folder.file("plain"));
    disk.push_back(
        rates(1, gigabytes, [&](int) { write_plainly(folder.file("plain"), bytes); })[0]);
    std::filesystem::remove(path);
    save.push_back(rates(1, gigabytes, [&](int) { io::save_run(path, run); })[0]);
  }
  std::filesystem::remove(folder.file("plain"));
  bench::report("checkpoint.disk", "GB/s", disk);
  bench::report("checkpoint.save", "GB/s", save);
  bench::report("checkpoint.load", "GB/s",
                rates(repeats, gigabytes, [&](int) { io::load_run(path, run); }));
  std::filesystem::remove(path);
  io::Checkpoints asynchronous(folder.file("run"), {.keep = 1, .async = true});
  for (int r = 0; r <= repeats; ++r) {
    const double start = bench::seconds();
    asynchronous.save(r, run);
    if (r > 0) copied.push_back(1e3 * (bench::seconds() - start));  // the first one allocates
    asynchronous.wait();
  }
  bench::report("checkpoint.copied", "ms", copied);
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv);
  set_num_threads(options.threads);
  if (options.work == "loader") {
    loaders(options);
  } else if (options.work == "checkpoint") {
    checkpoints(options);
  } else {
    throw std::invalid_argument("name a work: loader or checkpoint");
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_data: %s\n", e.what());
  return 2;
}
