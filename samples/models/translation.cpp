// Translation with attention (Bahdanau et al. 2015): an LSTM reads a string of digits, another
// writes it backwards, each digit plus 3. Lengths differ, so the padding of a batch must not count:
// lengths go to the LSTM and to the attention, and ignore_index to the loss.
#include <cstdio>
#include <cstdlib>

#include "firn/firn.h"

using namespace firn;

constexpr std::int64_t kLongest = 8, kStart = 10, kEnd = 11, kWords = 12, kWidth = 64;

/// A batch: sources [n, 8] of `lengths` digits, and targets [n, 9], which end with kEnd.
struct Batch {
  Tensor source, lengths, target;
};

static Batch draw(std::int64_t n) {
  const Tensor source = randint(0, 10, {n, kLongest}), place = arange(kLongest + 1);
  const Tensor lengths = randint(3, kLongest + 1, {n}), end = lengths.unsqueeze(1);
  // Place i of the target is place length - 1 - i of the source. Places after its end do not count.
  const Tensor inside = lt(place, end), from = where(inside, end - 1 - place, 0);
  const Tensor moved = remainder(gather(source, 1, from) + 3, 10);
  const Tensor target = where(inside, moved, where(eq(place, end), kEnd, full({}, -100, i64)));
  return {source, lengths, target};
}

struct Translator : nn::ModuleOf<Translator> {
  nn::Embedding source_words{kWords, kWidth}, target_words{kWords, kWidth};
  nn::LSTM encoder{kWidth, kWidth / 2, {.batch_first = true, .bidirectional = true}};
  nn::LSTM decoder{kWidth, kWidth, {.batch_first = true}};
  nn::MultiHeadAttention look{kWidth, 2, {.memory_width = kWidth}};
  nn::Linear out{2 * kWidth, kWords};
  FIRN_MEMBERS(source_words, target_words, encoder, decoder, look, out)

  Tensor read(const Batch& batch) {
    return encoder(source_words(batch.source), nn::RecurrentInput{.lengths = batch.lengths}).output;
  }
  /// Returns logits [n, steps, words] after `words` [n, steps], and replaces the decoder's state.
  Tensor write(const Tensor& words, const Tensor& memory, const Tensor& lengths,
               nn::RecurrentInput& state) {
    const auto [y, h, c] = decoder(target_words(words), state);
    state = {.h = h, .c = c};
    return out(cat({y, look(y, memory, nn::SeenKeys{.lengths = lengths})}, -1));
  }
  /// In training, the decoder reads the words that it should have written.
  Tensor forward(const Batch& batch) {
    const std::int64_t n = batch.source.size(0);
    const Tensor before = maximum(batch.target.slice(1, 0, kLongest), 0.0);
    nn::RecurrentInput state;
    return write(cat({full({n, 1}, kStart, i64), before}, 1), read(batch), batch.lengths, state);
  }
  /// Returns the most likely words, one after the other: [n, 9].
  Tensor translate(const Batch& batch) {
    const Tensor memory = read(batch);
    std::vector<Tensor> words = {full({batch.source.size(0), 1}, kStart, i64)};
    nn::RecurrentInput state;
    for (std::int64_t i = 0; i <= kLongest; ++i)
      words.push_back(argmax(write(words.back(), memory, batch.lengths, state)));
    return cat(words, 1).slice(1, 1, kLongest + 2);
  }
};

int main(int argc, char** argv) {
  manual_seed(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1);
  Translator net;
  optim::Adam opt(net.parameters(), {.lr = optim::cosine(5e-3, 400)}, {.clip_norm = 1});
  for (int step = 1; step <= 400; ++step) {
    const Batch batch = draw(64);
    const Loss loss = cross_entropy(net(batch), batch.target);
    opt.backward(loss);
    opt.step();
    if (step % 100 == 0) std::printf("step %d  loss %.4f\n", step, loss.item());
  }
  net.eval();
  const NoGrad guard;
  const Batch test = draw(500);
  const Tensor counts = ge(test.target, 0);
  const Tensor right = logical_and(eq(net.translate(test), test.target), counts);
  const double share = count_nonzero(right).item() / count_nonzero(counts).item();
  std::printf("%.1f %% of the words of 500 new strings are right\n", 100 * share);
  return share >= 0.95 ? 0 : 1;
}
