// A small GPT that learns a text byte by byte, and writes some at the end; `characters --help`
// lists the options. The common options of trainings, and the program around them, are in
// samples/program.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "firn/firn.h"
#include "firn/train/progress.h"
#include "program/model.h"
#include "program/training.h"

namespace sample {
namespace {

using firn::Tensor;
namespace data = firn::data;
namespace nn = firn::nn;

constexpr std::int64_t kBytes = 256;

struct Settings {
  std::string data;  ///< file; empty: made_text()
  std::string name() const { return data.empty() ? "made text" : data; }
  std::int64_t length = 64, width = 64, blocks = 2, heads = 4, generate = 200;
  double dropout = 0.1;
  std::string prompt = "the ";
};

/// Returns windows of 160 kB of sentences from four times eight words, which are always equal.
data::Dataset made_text(std::int64_t length) {
  using Words = std::array<const char*, 8>;
  static constexpr Words kWho{"fox", "child", "sailor", "aunt", "king", "bird", "snow", "dog"};
  static constexpr Words kDoes{"sees",   "follows", "forgets", "paints",
                               "covers", "finds",   "loves",   "wakes"};
  static constexpr Words kHow{"white", "old", "quiet", "green", "small", "heavy", "lost", "bright"};
  static constexpr Words kWhat{"house",  "river", "winter",  "garden",
                               "letter", "stone", "morning", "ship"};
  std::mt19937 draw(1);  // equal everywhere, unlike the library's distributions
  std::string text;
  while (text.size() < 160'000) {
    text += "the";
    for (const Words* words : {&kWho, &kDoes, &kHow, &kWhat})
      text.append(" ").append((*words)[draw() % words->size()]);
    text += draw() % 4 == 0 ? ".\n" : ". ";
  }
  const std::vector<std::int64_t> bytes(text.begin(), text.end());  // ASCII
  const auto n = static_cast<std::int64_t>(bytes.size());
  return {
      (n - 1) / length, [length, all = firn::tensor(bytes, {n})](std::int64_t i) {
        const std::int64_t at = i * length;
        return data::Sample{all.slice(0, at, at + length), all.slice(0, at + 1, at + 1 + length)};
      }};
}

/// Returns samples {x, y}, both i64 [length]: bytes of the text, and the byte that follows each.
data::Dataset open_text(const Settings& s) {
  const data::Dataset all =
      s.data.empty() ? made_text(s.length)
                     : data::Dataset(data::TokenDataset(
                           s.data, {.length = s.length, .format = data::TokenFormat::u8}));
  if (all.size() < 2)
    throw firn::IoError("characters", s.name(), "has no two windows of --length",
                        "give a longer text or a smaller --length");
  return all;
}

/// Attention and a feed-forward part, each added to its input (Radford et al. 2019), with rotary
/// positions.
struct Block : nn::Module {
  nn::LayerNorm norm1, norm2;
  nn::MultiHeadAttention attention;
  nn::Linear up, down;
  nn::Dropout dropout;
  FIRN_MEMBERS(norm1, attention, norm2, up, down, dropout)

  explicit Block(const Settings& s)
      : norm1(s.width),
        norm2(s.width),
        attention(s.width, s.heads, {.causal = true, .dropout = s.dropout, .rope_theta = 10'000.0}),
        up(s.width, 4 * s.width),
        down(4 * s.width, s.width),
        dropout(s.dropout) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = x + dropout(attention(norm1(x)));
    return h + dropout(down(firn::gelu(up(norm2(h)))));
  }
};

/// Maps bytes i64 [n, length] to logits of the bytes that follow, [n, length, 256].
struct Gpt : nn::Module {
  nn::Embedding bytes;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Linear logits;
  FIRN_MEMBERS(bytes, blocks, norm, logits)

  explicit Gpt(const Settings& s) : bytes(kBytes, s.width), norm(s.width), logits(s.width, kBytes) {
    for (std::int64_t i = 0; i < s.blocks; ++i) blocks.emplace_back(s);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = bytes(x);
    for (Block& block : blocks) h = block(h);
    return logits(norm(h));
  }
};

class Writer final : public Training {
 public:
  Writer(const Settings& settings, const Options& o, firn::Device device)
      : settings_(settings),
        precision_(o.precision),
        seed_(o.seed),
        device_(device),
        model_(prepared(std::make_unique<Gpt>(settings), o, device)),
        text_(open_text(settings)),
        trained_(text_.size() - std::max<std::int64_t>(text_.size() / 10, 1)),
        tests_(data::Loader(data::Subset(text_, trained_, text_.size()),
                            {.batch = 16, .device = device})) {}

  std::string name() const override { return "gpt"; }
  nn::Module& model() override { return *model_; }
  std::string data() const override {
    return settings_.name() + ": " + firn::train::grouped(trained_) + " training and " +
           firn::train::grouped(text_.size() - trained_) + " test windows of " +
           std::to_string(settings_.length) + " bytes";
  }
  Batches batches(const Options& o) override {
    return data::Loader(data::Subset(text_, 0, trained_), loader_options(o, device_));
  }
  Batches& tests() override { return tests_; }
  firn::Loss loss(const Tensor& logits, const Tensor& y, bool) override {
    return firn::cross_entropy(logits, y, {.axis = -1});
  }
  std::vector<firn::metrics::Metric*> figures() override { return {&perplexity_}; }
  void describe_run(firn::train::Record& r) const override {
    r.add("length", settings_.length).add("width", settings_.width);
    r.add("blocks", settings_.blocks).add("heads", settings_.heads);
    r.add("dropout", settings_.dropout).add("data", settings_.name());
  }
  void show(nn::Module& model) override;
  std::string result() const override {
    char text[48];
    std::snprintf(text, sizeof text, "test perplexity %.4f", perplexity_.values()[0].value);
    return text;
  }

 private:
  const Settings& settings_;
  std::string precision_;
  std::uint64_t seed_;
  firn::Device device_;
  std::unique_ptr<nn::Module> model_;
  data::Dataset text_;
  std::int64_t trained_;  ///< number of windows for training; the others are for tests
  Batches tests_;
  firn::metrics::Perplexity perplexity_;
};

/// Prints --prompt, and the bytes that the model draws after it one by one.
void Writer::show(nn::Module& model) {
  if (settings_.generate == 0) return;
  const firn::NoGrad guard;
  model.eval();
  firn::Generator draws(seed_);
  std::vector<std::int64_t> text;
  for (const char c : settings_.prompt) text.push_back(static_cast<unsigned char>(c));
  for (std::int64_t i = 0; i < settings_.generate; ++i) {
    const auto seen =
        std::min<std::int64_t>(static_cast<std::int64_t>(text.size()), settings_.length);
    const std::vector<std::int64_t> last(text.end() - seen, text.end());
    const Tensor x = firn::to_device(firn::tensor(last, {1, seen}, firn::Device::cpu()), device_);
    const Tensor logits = output_of(model, x, precision_)[0][seen - 1];
    const auto shares = firn::softmax(firn::cast(logits, firn::f64), -1).to_vector<double>();
    double left = firn::rand({1}, {.device = firn::Device::cpu(), .generator = &draws}).item();
    std::int64_t byte = 0;
    while (byte < kBytes - 1 && (left -= shares[static_cast<std::size_t>(byte)]) >= 0) ++byte;
    text.push_back(byte);
  }
  std::string shown;
  for (const std::int64_t byte : text) {
    const auto c = static_cast<unsigned char>(byte);
    shown += std::isprint(c) != 0 || c == '\n' ? static_cast<char>(c) : '?';
  }
  std::printf("\n%s\n", shown.c_str());
}

class Characters final : public Sample {
 public:
  About about() const override {
    return {.program = "characters",
            .purpose = "Trains a small GPT on the bytes of a text, or tests a trained one.",
            .one = "window",
            .most = 1'000'000,
            .blocks = "the model's blocks"};
  }

  void add_options(CLI::App& app) override {
    app.add_option("--data", settings_.data, "file whose bytes are the text [a made text]");
    const auto number = [&app](const char* name, std::int64_t& value, const char* what,
                               std::int64_t least, std::int64_t most) {
      app.add_option(name, value, what)->check(CLI::Range(least, most))->capture_default_str();
    };
    number("--length", settings_.length, "bytes of a window: what the model sees", 1, 65'536);
    number("--width", settings_.width, "numbers for a byte within the model", 2, 65'536);
    number("--blocks", settings_.blocks, "blocks of attention and feed-forward layers", 1, 1000);
    number("--heads", settings_.heads, "heads of attention, which divide --width", 1, 1024);
    app.add_option("--dropout", settings_.dropout, "share of activations that become zero, below 1")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    number("--generate", settings_.generate, "bytes to write at the end", 0, 1'000'000);
    app.add_option("--prompt", settings_.prompt, "what they follow")->capture_default_str();
  }

  void check(const Options& o) override {
    if (settings_.width % (2 * settings_.heads) != 0)
      refuse("--heads", "a head takes an even part of --width: " + std::to_string(settings_.width) +
                            " is no multiple of 2 x " + std::to_string(settings_.heads));
    if (settings_.dropout >= 1) refuse("--dropout", "must be less than 1");
    if (settings_.prompt.empty()) refuse("--prompt", "needs a character or more");
    check_contradiction(o.by_batches() && o.accumulate.size() > 1, "--accumulate-schedule",
                        o.ranks > 1 ? "--ranks" : "--exact",
                        "all batches of a loader have one size");
  }

  std::unique_ptr<Training> training(const Options& o, firn::Device device,
                                     const firn::dist::Group&) const override {
    return std::make_unique<Writer>(settings_, o, device);
  }

 private:
  Settings settings_;
};

}  // namespace
}  // namespace sample

int main(int argc, char** argv) {
  sample::Characters program;
  return sample::run(program, argc, argv);
}
