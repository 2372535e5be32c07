// Speech recognition in miniature. A word is a number of sounds, a sound lasts for some steps of
// noisy features, and the data does not say where it ends. ctc_loss() adds up all ways to cut the
// steps.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "firn/firn.h"

using namespace firn;

constexpr std::int64_t kSounds = 8, kFeatures = 12, kLongest = 6, kSteps = 54;

/// Words of 2 to 6 sounds, 1 to 8; class 0 is the blank of ctc_loss().
struct Speech {
  Tensor features, steps, words, lengths;  // [n, 54, 12], [n], [n, 6], [n]
};

// Makes speech: each sound has its own vector, lasts 3 to 7 steps, and is followed by 1 or 2 silent
// steps.
static Speech say(std::int64_t n, const Tensor& vectors) {
  Speech all{randn({n, kSteps, kFeatures}) * 0.5, zeros({n}, i64),
             randint(1, kSounds + 1, {n, kLongest}), randint(2, kLongest + 1, {n})};
  const auto words = all.words.to_vector<std::int64_t>(),
             lengths = all.lengths.to_vector<std::int64_t>(),
             lasts = randint(3, 8, {n * kLongest}).to_vector<std::int64_t>(),
             pauses = randint(1, 3, {n * kLongest}).to_vector<std::int64_t>();
  std::vector<std::int64_t> steps;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t at = 0;
    for (std::int64_t j = 0; j < lengths[static_cast<std::size_t>(i)]; ++j) {
      const auto k = static_cast<std::size_t>(i * kLongest + j);
      Tensor sound = all.features[i].slice(0, at, at + lasts[k]);
      sound += vectors[words[k] - 1];
      at += lasts[k] + pauses[k];
    }
    steps.push_back(at);
  }
  all.steps = tensor(steps, {n});
  return all;
}

struct Recognizer : nn::ModuleOf<Recognizer> {
  nn::LSTM lstm{kFeatures, 48, {.batch_first = true, .bidirectional = true}};
  nn::Linear out{96, kSounds + 1};
  FIRN_MEMBERS(lstm, out)
  /// Returns log-probabilities [steps, n, classes], as ctc_loss() takes them.
  Tensor forward(const Speech& s) {
    const Tensor y = lstm(s.features, nn::RecurrentInput{.lengths = s.steps}).output;
    return log_softmax(out(y)).transpose(0, 1);
  }
};

// Returns the likeliest class of each step, without repetitions and blanks.
static std::vector<std::vector<std::int64_t>> spell(const Tensor& log_probs, const Tensor& steps) {
  std::vector<std::vector<std::int64_t>> words;
  for (std::int64_t i = 0; i < steps.numel(); ++i) {
    const auto best = argmax(log_probs.select(1, i)).to_vector<std::int64_t>();
    const auto length = static_cast<std::size_t>(steps[i].item());
    words.emplace_back();
    for (std::size_t t = 0; t < length; ++t)
      if (best[t] != 0 && (t == 0 || best[t] != best[t - 1])) words.back().push_back(best[t]);
  }
  return words;
}

// Returns the fewest insertions, deletions and substitutions that turn b into a.
static std::size_t edits(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, corner + (a[i - 1] == b[j - 1] ? 0 : 1)});
      corner = above;
    }
  }
  return row[b.size()];
}

int main(int argc, char** argv) {
  manual_seed(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1);
  const Tensor vectors = randn({kSounds, kFeatures});
  Recognizer net;
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(1e-2, 200)}, {.clip_norm = 1});
  for (int step = 1; step <= 200; ++step) {
    const Speech batch = say(32, vectors);
    const Loss loss = ctc_loss(net(batch), batch.words, batch.steps, batch.lengths);
    opt.backward(loss);
    opt.step();
    if (step % 50 == 0) std::printf("step %d  loss %.4f\n", step, loss.item());
  }
  net.eval();
  const NoGrad guard;
  const Speech test = say(200, vectors);
  const auto heard = spell(net(test), test.steps);
  const auto said = test.words.to_vector<std::int64_t>(),
             lengths = test.lengths.to_vector<std::int64_t>();
  std::size_t wrong = 0, all = 0;
  for (std::size_t i = 0; i < heard.size(); ++i) {
    const auto first = said.begin() + static_cast<std::ptrdiff_t>(i * kLongest);
    wrong += edits(heard[i], {first, first + lengths[i]});
    all += static_cast<std::size_t>(lengths[i]);
  }
  const double rate = static_cast<double>(wrong) / static_cast<double>(all);
  std::printf("%.2f %% of the sounds of 200 new words are wrong\n", 100 * rate);
  return rate <= 0.05 ? 0 : 1;
}
