// Sorting lines of a tensor on the CPU. An element is sorted together with its position, so no two
// are equal, and the order does not depend on the algorithm. A long line is sorted in pieces, which
// are merged by twos.
#include "kernels/sort.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/device/scratch.h"
#include "kernels/math/macros.h"
#include "kernels/math/order_key.h"
#include "kernels/plan/walk.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kPiece = 1 << 16;  // elements that one thread sorts

/// A key of up to 32 bits above its position.
struct Narrow {
  std::uint64_t bits;

  Narrow(std::uint64_t key, std::int64_t position)
      : bits(key << 32 | static_cast<std::uint64_t>(position)) {}
  std::int64_t position() const { return static_cast<std::int64_t>(bits & 0xffffffffu); }
  friend bool operator<(Narrow a, Narrow b) { return a.bits < b.bits; }
};
struct Wide {
  std::uint64_t key;
  std::int64_t at;

  Wide(std::uint64_t k, std::int64_t position) : key(k), at(position) {}
  std::int64_t position() const { return at; }
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.key != b.key ? a.key < b.key : a.at < b.at;
  }
};

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

  /// Puts the first of the elements [begin, end) of a line, as many as are kept, in front and in
  /// order. Returns how many.
  std::int64_t sort_piece(const U* line, std::int64_t begin, std::int64_t end, Entry* to) const {
    for (std::int64_t j = begin; j < end; ++j) to[j - begin] = Entry(key_(line[j * x_step_]), j);
    const std::int64_t n = end - begin, first = std::min(kept_, n);
    if (first < n) std::nth_element(to, to + first, to + n);
    std::sort(to, to + first);
    return first;
  }
  void write(const Entry* sorted, std::int64_t* line) const {
    for (std::int64_t j = 0; j < kept_; ++j) line[j * out_step_] = sorted[j].position();
  }

  void sort_short() const {
    const std::int64_t together = kPiece / length_;
    const std::int64_t bytes = slot_bytes_of<Entry>(length_);
    parallel_for_with_scratch(
        bytes, math::ceil_div(count_, together), count_ * length_, [&](std::int64_t chunk) {
          const ScratchMemory memory(bytes);
          auto* const entries = static_cast<Entry*>(memory.data());
          const std::int64_t begin = chunk * together, end = std::min(count_, begin + together);
          walk_.runs(begin, end, 1, [&](const std::int64_t* at, std::int64_t) {
            sort_piece(x_ + at[0], 0, length_, entries);
            write(entries, out_ + at[1]);
          });
        });
  }

  /// Line by line, as the pieces of one keep all threads busy.
  void sort_long() const {
    const ScratchMemory memory(2 * slot_bytes_of<Entry>(length_));
    if (runtime::dry_run()) return;
    const std::int64_t pieces = math::ceil_div(length_, kPiece);
    walk_.runs(0, count_, 1, [&](const std::int64_t* at, std::int64_t) {
      auto* from = static_cast<Entry*>(memory.data());
      Entry* to = from + length_;
      parallel_for(pieces, length_, [&](std::int64_t p) {
        const std::int64_t begin = p * kPiece;
        sort_piece(x_ + at[0], begin, std::min(length_, begin + kPiece), from + begin);
      });
      for (std::int64_t width = kPiece; width < length_; width *= 2) {
        const std::int64_t pairs = math::ceil_div(length_, 2 * width);
        parallel_for(pairs, length_, [&](std::int64_t p) {
          const std::int64_t begin = 2 * p * width, middle = std::min(length_, begin + width);
          const std::int64_t end = std::min(length_, middle + width);
          merge(from + begin, std::min(kept_, middle - begin), from + middle,
                std::min(kept_, end - middle), to + begin);
        });
        std::swap(from, to);
      }
      write(from, out_ + at[1]);
    });
  }
  /// The first of two sorted lists, as many as are kept.
  void merge(const Entry* a, std::int64_t in_a, const Entry* b, std::int64_t in_b,
             Entry* to) const {
    const std::int64_t n = std::min(kept_, in_a + in_b);
    for (std::int64_t i = 0, j = 0; i + j < n;) {
      const bool first = j == in_b || (i < in_a && a[i] < b[j]);
      Entry* const next = to + i + j;
      *next = first ? a[i++] : b[j++];
    }
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
