// A classifier of clothes: data, a model, a training loop, an evaluation and options in one file,
// to copy as the start of a program of your own. It needs only firn.
//
//   fashion_mnist --epochs 3 --precision bf16 --accumulate 2
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "firn/firn.h"

using namespace firn;

namespace {

// ---- Options ----

constexpr const char* kHelp =
    "Trains a model on FashionMNIST, and prints the share of test images that it gets right.\n"
    "\n"
    "  --epochs N           passes over the training images [5]\n"
    "  --precision P        f32, f16 or bf16: the dtype of the model [f32]; its gradients and\n"
    "                       master weights are f32 in any case\n"
    "  --accumulate N       micro-batches of 64 images in a step of the optimizer [1]\n"
    "  --help               prints this text\n"
    "\n"
    "The images are looked for in $FIRN_DATA, in data/fashion-mnist, and in\n"
    "/usr/share/datasets/fashion-mnist.\n";

struct Options {
  std::int64_t epochs = 5, accumulate = 1;
  DType precision = f32;
  bool help = false;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error("fashion_mnist", what, "--help lists the options");
}

std::int64_t parse_number(const std::string& name, std::string_view text) {
  constexpr std::int64_t kMost = 1'000'000;
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 1 || number > kMost)
    refuse(name + " takes a whole number from 1 to " + std::to_string(kMost) + ", not '" +
           std::string(text) + "'");
  return number;
}

DType parse_precision(std::string_view text) {
  for (const DType dtype : {f32, f16, bf16})
    if (text == to_string(dtype)) return dtype;
  refuse("--precision takes f32, f16 or bf16, not '" + std::string(text) + "'");
}

/// Each option is "--name value" or "--name=value".
Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      continue;
    }
    if (name != "--epochs" && name != "--precision" && name != "--accumulate")
      refuse("'" + argument + "' is not an option");
    if (equals == std::string::npos && i + 1 == argc) refuse(name + " lacks its value");
    const std::string value = equals == std::string::npos ? argv[++i] : argument.substr(equals + 1);
    if (name == "--epochs") options.epochs = parse_number(name, value);
    if (name == "--precision") options.precision = parse_precision(value);
    if (name == "--accumulate") options.accumulate = parse_number(name, value);
  }
  return options;
}

// ---- Model ----

struct Net : nn::Module {
  nn::Linear in{28 * 28, 512}, hidden{512, 512}, out{512, data::FashionMnist::kClasses};
  FIRN_MEMBERS(in, hidden, out)
  /// Maps x [n, 784] to logits [n, 10].
  Tensor forward(const Tensor& x) override { return out(relu(hidden(relu(in(x))))); }
};

// ---- Training and evaluation ----

/// Trains on one pass over the images. Returns the mean loss.
double train(Net& net, optim::Optimizer& optimizer, data::Loader& loader) {
  net.train();
  const optim::LossTotals before = optimizer.loss_totals();
  for (const data::LoaderBatch& batch : loader) {
    optimizer.backward(cross_entropy(net(batch.x()), batch.y()));  // gradients add up in f32
    optimizer.step();  // updates the weights in every call whose number --accumulate divides
  }
  optimizer.flush();  // updates with the rest, if the last micro-batches are fewer
  const optim::LossTotals after = optimizer.loss_totals();
  return (after.loss - before.loss) / (after.weight - before.weight);
}

/// Returns the share of images whose class has the largest logit.
double evaluate(Net& net, data::Loader& loader) {
  const NoGrad guard;
  net.eval();
  double right = 0, all = 0;
  for (const data::LoaderBatch& batch : loader) {
    right += eq(argmax(net(batch.x())), batch.y()).to(f32).sum().item();
    all += static_cast<double>(batch.y().size(0));
  }
  return right / all;
}

void run(const Options& options) {
  const data::FashionMnist set = data::load_fashion_mnist();
  const data::ImageOptions pixels{.flatten = true, .dtype = options.precision};
  data::Loader train_loader(data::ImageDataset(set.train, pixels),
                            {.batch = 64, .shuffle = true, .seed = 1});
  data::Loader test_loader(data::ImageDataset(set.test, pixels), {.batch = 1000});

  manual_seed(1);
  Net net;
  net.to(options.precision);
  optim::Adam optimizer(net.parameters(), {.lr = 1e-3}, {.accumulate = options.accumulate});

  std::printf("%lld training and %lld test images of %s, %lld parameters\n",
              static_cast<long long>(set.train.size()), static_cast<long long>(set.test.size()),
              set.folder.c_str(), static_cast<long long>(net.num_parameters()));
  double accuracy = 0;
  for (std::int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const double loss = train(net, optimizer, train_loader);
    accuracy = evaluate(net, test_loader);
    std::printf("epoch %lld  loss %.4f  test accuracy %.4f\n", static_cast<long long>(epoch), loss,
                accuracy);
    std::fflush(stdout);
  }
  std::printf("test accuracy %.4f\n", accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    options.help ? static_cast<void>(std::fputs(kHelp, stdout)) : run(options);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
