// Sorting lines of a tensor on the CPU. An element is sorted together with its position, so no two
// are equal, and the order does not depend on the algorithm. Pieces are sorted by the digits of
// their keys, short ones by comparisons. A long line is sorted in pieces, which are merged in
// pairs. If few elements are kept, most are only compared with a bound.
#include "kernels/sort.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/device/scratch.h"
#include "kernels/math/macros.h"
#include "kernels/math/order_key.h"
#include "kernels/plan/walk.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kPiece = 1 << 16;        // elements that one thread sorts
constexpr std::int64_t kByDigits = 256;         // elements from which on digits beat comparisons
constexpr std::int64_t kBlock = 64;             // elements that are compared with a bound at once
constexpr std::int64_t kSelected = 1024;        // elements from which on a bound pays
constexpr std::int64_t kMergedPiece = 1 << 15;  // merged elements of a chunk

/// A key of up to 32 bits above its position.
struct Narrow {
  std::uint64_t bits;

  Narrow(std::uint64_t key, std::int64_t position)
      : bits(key << 32 | static_cast<std::uint64_t>(position)) {}
  std::int64_t position() const { return static_cast<std::int64_t>(bits & 0xffffffffu); }
  unsigned digit(int d) const { return static_cast<unsigned>(bits >> (32 + 8 * d)) & 0xffu; }
  friend bool operator<(Narrow a, Narrow b) { return a.bits < b.bits; }
};
struct Wide {
  std::uint64_t key;
  std::int64_t at;

  Wide(std::uint64_t k, std::int64_t position) : key(k), at(position) {}
  std::int64_t position() const { return at; }
  unsigned digit(int d) const { return static_cast<unsigned>(key >> (8 * d)) & 0xffu; }
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.key != b.key ? a.key < b.key : a.at < b.at;
  }
};

/// Sorts n entries, whose positions ascend, by keys of `digits` bytes. `other` has room for n
/// entries. Bytes that all keys share are skipped.
template <class Entry>
void sort_by_digits(Entry* entries, Entry* other, std::int64_t n, int digits) {
  std::array<std::array<std::int64_t, 256>, 8> counts{};
  for (std::int64_t i = 0; i < n; ++i)
    for (int d = 0; d < digits; ++d) ++counts[static_cast<std::size_t>(d)][entries[i].digit(d)];
  Entry* from = entries;
  for (int d = 0; d < digits; ++d) {
    auto& count = counts[static_cast<std::size_t>(d)];
    if (count[from[0].digit(d)] == n) continue;
    std::int64_t place = 0;
    for (std::int64_t& c : count) place += std::exchange(c, place);
    for (std::int64_t i = 0; i < n; ++i) other[count[from[i].digit(d)]++] = from[i];
    std::swap(from, other);
  }
  if (from != entries) std::copy_n(from, n, entries);
}

/// Sorts all lines of x along one axis.
template <class U, class Entry>
class Sorter {
 public:
  Sorter(const ConstView& x, const View& out, int axis, bool descending)
      : x_(x.as<U>()),
        out_(out.as<std::int64_t>()),
        key_(x.dtype, descending),
        length_(x.shape[axis]),
        kept_(out.shape[axis]),
        x_step_(x.strides[axis]),
        out_step_(out.strides[axis]),
        count_(x.numel() / length_),
        walk_(lines_of(x, out, axis)) {}

  void run() const { length_ <= kPiece ? sort_short() : sort_long(); }

 private:
  static Walk lines_of(const ConstView& x, const View& out, int axis) {
    Shape shape = x.shape;
    Strides from = x.strides, to = out.strides;
    shape[axis] = 1;
    from[axis] = to[axis] = 0;
    const Strides* const strides[] = {&from, &to};
    return Walk(shape, strides, 2);
  }

  void read_keys(const U* line, std::int64_t begin, std::int64_t end, U* keys) const {
    const math::OrderKey<U> key = key_;
    if (x_step_ == 1) {
      for (std::int64_t j = begin; j < end; ++j) keys[j - begin] = key(line[j]);
    } else {
      for (std::int64_t j = begin; j < end; ++j) keys[j - begin] = key(line[j * x_step_]);
    }
  }
  /// Puts the first of the elements [begin, end) of a line in front and in order, at most the
  /// number that is kept. Returns their number. `other` has room for as many entries as `to`.
  std::int64_t sort_piece(const U* line, std::int64_t begin, std::int64_t end, Entry* to,
                          Entry* other) const {
    const std::int64_t n = end - begin, first = std::min(kept_, n);
    if (first <= n / 8 && n >= kSelected) return select_piece(line, begin, end, to);
    for (std::int64_t j = begin; j < end; ++j) to[j - begin] = Entry(key_(line[j * x_step_]), j);
    if (n >= kByDigits) {
      sort_by_digits(to, other, n, static_cast<int>(sizeof(U)));
    } else {
      if (first < n) std::nth_element(to, to + first, to + n);
      std::sort(to, to + first);
    }
    return first;
  }
  /// sort_piece() if few are kept. It skips elements that are not below the last of the first so
  /// far: equal ones are not below it, as their positions are greater.
  std::int64_t select_piece(const U* line, std::int64_t begin, std::int64_t end, Entry* to) const {
    const std::int64_t room = std::min(end - begin, 4 * kept_ + 4 * kBlock);
    std::int64_t held = 0;
    U bound = 0;
    bool open = true;  // true while there is no bound
    std::array<U, kBlock> keys;
    for (std::int64_t block = begin; block < end; block += kBlock) {
      const std::int64_t n = std::min(kBlock, end - block);
      if (held + n > room) {
        std::nth_element(to, to + (kept_ - 1), to + held);
        held = kept_;
        bound = key_(line[to[kept_ - 1].position() * x_step_]);
        open = false;
      }
      read_keys(line, block, block + n, keys.data());
      for (std::int64_t j = 0; j < n; ++j) {  // a branch would often be mispredicted
        const U key = keys[static_cast<std::size_t>(j)];
        to[held] = Entry(key, block + j);
        held += (key < bound || open) ? 1 : 0;
      }
    }
    if (held > kept_) std::nth_element(to, to + kept_, to + held);
    std::sort(to, to + kept_);
    return kept_;
  }
  void write(const Entry* sorted, std::int64_t* line) const {
    for (std::int64_t j = 0; j < kept_; ++j) line[j * out_step_] = sorted[j].position();
  }

  void sort_short() const {
    const std::int64_t together = kPiece / length_;
    const std::int64_t bytes = slot_bytes_of<Entry>(2 * length_);
    parallel_for_with_scratch(
        bytes, math::ceil_div(count_, together), count_ * length_, [&](std::int64_t chunk) {
          const ScratchMemory memory(bytes);
          auto* const entries = static_cast<Entry*>(memory.data());
          const std::int64_t begin = chunk * together, end = std::min(count_, begin + together);
          walk_.runs(begin, end, 1, [&](const std::int64_t* at, std::int64_t) {
            sort_piece(x_ + at[0], 0, length_, entries, entries + length_);
            write(entries, out_ + at[1]);
          });
        });
  }

  /// Sorts line by line, as the pieces of one line keep all threads busy.
  void sort_long() const {
    const ScratchMemory memory(2 * slot_bytes_of<Entry>(length_));
    if (runtime::dry_run()) return;
    const std::int64_t pieces = math::ceil_div(length_, kPiece);
    walk_.runs(0, count_, 1, [&](const std::int64_t* at, std::int64_t) {
      auto* from = static_cast<Entry*>(memory.data());
      Entry* to = from + length_;
      parallel_for(pieces, length_, [&](std::int64_t p) {
        const std::int64_t begin = p * kPiece;
        sort_piece(x_ + at[0], begin, std::min(length_, begin + kPiece), from + begin, to + begin);
      });
      for (std::int64_t width = kPiece; width < length_; width *= 2) {
        const std::int64_t pairs = math::ceil_div(length_, 2 * width);
        const std::int64_t parts = math::ceil_div(std::min(kept_, 2 * width), kMergedPiece);
        parallel_for(pairs * parts, length_, [&](std::int64_t p) {
          const std::int64_t begin = 2 * width * (p / parts);
          const std::int64_t middle = std::min(length_, begin + width);
          const std::int64_t end = std::min(length_, middle + width);
          merge(from + begin, std::min(kept_, middle - begin), from + middle,
                std::min(kept_, end - middle), p % parts * kMergedPiece, to + begin);
        });
        std::swap(from, to);
      }
      write(from, out_ + at[1]);
    });
  }
  /// Merges two sorted lists into elements [first, first + kMergedPiece), as far as they are kept.
  void merge(const Entry* a, std::int64_t in_a, const Entry* b, std::int64_t in_b,
             std::int64_t first, Entry* to) const {
    const std::int64_t last = std::min({kept_, in_a + in_b, first + kMergedPiece});
    if (first >= last) return;
    // Finds how many of the elements before `first` are those of a.
    std::int64_t i = std::max<std::int64_t>(0, first - in_b), most = std::min(first, in_a);
    while (i < most) {
      const std::int64_t half = i + (most - i) / 2;
      if (a[half] < b[first - half - 1]) {
        i = half + 1;
      } else {
        most = half;
      }
    }
    std::int64_t j = first - i, n = first;
    for (; n < last && i < in_a && j < in_b; ++n) {
      const bool of_a = a[i] < b[j];
      to[n] = of_a ? a[i] : b[j];
      i += of_a ? 1 : 0;
      j += of_a ? 0 : 1;
    }
    std::copy_n(i < in_a ? a + i : b + j, last - n, to + n);
  }

  const U* x_;
  std::int64_t* out_;
  math::OrderKey<U> key_;
  std::int64_t length_, kept_, x_step_, out_step_, count_;
  Walk walk_;  ///< over the lines: x, out
};

template <class U>
void sort_as(const ConstView& x, const View& out, int axis, bool descending) {
  if constexpr (sizeof(U) < 8) {
    if (x.shape[axis] <= std::int64_t{0xffffffff})
      return Sorter<U, Narrow>(x, out, axis, descending).run();
  }
  Sorter<U, Wide>(x, out, axis, descending).run();
}

}  // namespace

void sort_positions(const ConstView& x, const View& out, int axis, bool descending, Stream) {
  if (out.numel() == 0) return;
  switch (size_of(x.dtype)) {
    case 1:
      return sort_as<std::uint8_t>(x, out, axis, descending);
    case 2:
      return sort_as<std::uint16_t>(x, out, axis, descending);
    case 4:
      return sort_as<std::uint32_t>(x, out, axis, descending);
    default:
      return sort_as<std::uint64_t>(x, out, axis, descending);
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
