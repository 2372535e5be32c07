// einsum(): reads the equation, takes diagonals, and plans the order of the products. It has no
// kernel of its own.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "firn/ops/products.h"
#include "firn/ops/rearrange.h"
#include "ops/product/contraction.h"

namespace firn {

using namespace ops;

namespace {

constexpr int kLetters = 52, kAll = kLetters + kMaxRank;  ///< A-Z, a-z, then the axes of "..."

int number_of(char c) noexcept { return c >= 'a' ? 26 + c - 'a' : c - 'A'; }
std::string name_of(std::int64_t i) {
  return i >= kLetters ? "..." : std::string(1, static_cast<char>(i < 26 ? 'A' + i : 'a' + i - 26));
}

/// Returns the beginning of an equation for an error: an equation may be of any length.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  return std::string(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
}

/// Returns one list of letters without spaces, with '.' for "...".
std::string compact(std::string_view equation, std::string_view term) {
  std::string out;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (c == '.') {
      FIRN_CHECK(term.substr(i, 3) == "..." && out.find('.') == std::string::npos, "einsum",
                 "write ... once, as three dots", "\"{}\" has another dot", shown(equation));
      i += 2;
    } else {
      FIRN_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "einsum",
                 "an axis is a letter, a-z or A-Z; operands are parted by commas",
                 "\"{}\" has a '{}' among its letters", shown(equation), c);
    }
    out += c;
  }
  return out;
}

/// Returns the letters of the axes; those of "..." are the last of kAll, so that they align.
Dims letters_of(const std::string& term, int dotted) {
  Dims out;
  for (const char c : term) {
    if (c != '.') out.push_back(number_of(c));
    for (int k = 0; c == '.' && k < dotted; ++k) out.push_back(kAll - dotted + k);
  }
  return out;
}

/// An equation for given operands, checked.
struct Equation {
  std::vector<Dims> letters;  ///< letters of each operand, some of them twice
  Dims result;                ///< the letters of the result

  Equation(std::string_view text, std::span<const Tensor> operands);
};

void check_result(std::string_view text, const std::string& term, int dotted,
                  const std::array<int, kAll>& counts) {
  const std::size_t axes =
      term.size() - (term.find('.') == std::string::npos ? 0 : 1) +
      (term.find('.') == std::string::npos ? 0 : static_cast<std::size_t>(dotted));
  FIRN_CHECK(axes <= kMaxRank, "einsum", "sum over a letter, or merge axes first",
             "\"{}\": the result would have {} axes, more than {}", shown(text), axes, kMaxRank);
  for (const char c : term) {
    if (c == '.') continue;
    FIRN_CHECK(std::count(term.begin(), term.end(), c) == 1, "einsum",
               "an axis is once in the result", "\"{}\" has {} twice after the arrow", shown(text),
               c);
    FIRN_CHECK(counts[static_cast<std::size_t>(number_of(c))] > 0, "einsum",
               "a letter of the result is one of an operand", "\"{}\": no operand has {}",
               shown(text), c);
  }
}

Equation::Equation(std::string_view text, std::span<const Tensor> operands) {
  const std::size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  std::vector<std::string> terms;
  for (std::size_t comma = left.find(','); comma != std::string_view::npos;
       comma = left.find(',')) {
    terms.push_back(compact(text, left.substr(0, comma)));
    left.remove_prefix(comma + 1);
  }
  terms.push_back(compact(text, left));
  FIRN_CHECK(terms.size() == operands.size(), "einsum",
             "name the axes of each operand, with commas between",
             "\"{}\" has {} operands, and {} are given", shown(text), terms.size(),
             operands.size());

  std::array<int, kAll> counts{};  // number of times that a letter occurs
  int dotted = 0;                  // largest number of axes that a "..." stands for
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const int rank = operands[i].rank();
    const auto named = static_cast<int>(terms[i].size());
    const bool dots = terms[i].find('.') != std::string::npos;
    FIRN_CHECK(dots ? named - 1 <= rank : named == rank, "einsum",
               "name each axis by a letter, or let ... stand for some",
               "\"{}\": operand {}, \"{}\", names {} axes of {}", shown(text), i,
               shown(dots ? std::string(terms[i]).replace(terms[i].find('.'), 1, "...") : terms[i]),
               dots ? named - 1 : named, describe(operands[i]));
    if (dots) dotted = std::max(dotted, rank - named + 1);
    for (const char c : terms[i])
      if (c != '.') ++counts[static_cast<std::size_t>(number_of(c))];
  }

  std::array<std::int64_t, kAll> sizes;
  std::array<std::size_t, kAll> owners{};
  sizes.fill(1);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const int rank = operands[i].rank();
    const Dims& own =
        letters.emplace_back(letters_of(terms[i], rank + 1 - static_cast<int>(terms[i].size())));
    for (int axis = 0; axis < rank; ++axis) {
      const auto l = static_cast<std::size_t>(own[axis]);
      const std::int64_t n = operands[i].shape()[axis];
      for (int other = 0; other < axis; ++other)
        FIRN_CHECK(own[other] != own[axis] || operands[i].shape()[other] == n, "einsum",
                   "a diagonal has axes of one size",
                   "\"{}\": {} is twice in operand {}, with sizes {} and {}: {}", shown(text),
                   name_of(own[axis]), i, operands[i].shape()[other], n, describe(operands[i]));
      FIRN_CHECK(n == sizes[l] || n == 1 || sizes[l] == 1, "einsum", "a letter has one size, or 1",
                 "\"{}\": {} has size {} in operand {}, {}, and {} in operand {}, {}", shown(text),
                 name_of(own[axis]), sizes[l], owners[l], describe(operands[owners[l]]), n, i,
                 describe(operands[i]));
      if (sizes[l] == 1) sizes[l] = n, owners[l] = i;
    }
  }

  std::string term;
  if (arrow != std::string_view::npos) {
    term = compact(text, text.substr(arrow + 2));
  } else {
    if (dotted > 0) term = ".";
    for (int l = 0; l < kLetters; ++l)
      if (counts[static_cast<std::size_t>(l)] == 1) term += name_of(l);
  }
  check_result(text, term, dotted, counts);
  result = letters_of(term, dotted);
}

/// Keeps each letter once: those that are twice become the axis of their diagonal.
Lettered with_diagonals(Lettered t) {
  for (int i = 0; i < t.letters.size(); ++i)
    for (int k = i + 1; k < t.letters.size(); ++k) {
      if (t.letters[i] != t.letters[k]) continue;
      const std::int64_t both = t.letters[i];
      t.x = diagonal(t.x, 0, i, k);
      t.letters.erase(k);
      t.letters.erase(i);
      t.letters.push_back(both);
      i = -1;  // from the start
      break;
    }
  return t;
}

/// The pair to contract next.
struct Pair {
  std::size_t first = 0, second = 0;
  Letters keep = 0;
  double work = 0, size = 0;
};

Pair cheapest(std::string_view text, const std::vector<Lettered>& parts, Letters result) {
  std::array<int, kAll> users{};
  std::array<double, kAll> sizes{};
  std::vector<Letters> sets;
  for (const Lettered& p : parts) {
    sets.push_back(set_of(p.letters));
    for (int i = 0; i < p.letters.size(); ++i) {
      const auto l = static_cast<std::size_t>(p.letters[i]);
      ++users[l];
      sizes[l] = static_cast<double>(p.x.shape()[i]);
    }
  }
  Pair best;
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t k = i + 1; k < parts.size(); ++k) {
      Pair pair{.first = i, .second = k, .keep = result, .work = 1, .size = 1};
      const Letters all = sets[i] | sets[k];
      for (int l = 0; l < kAll; ++l) {
        if ((all & letter(l)) == 0) continue;
        const auto at = static_cast<std::size_t>(l);
        const int here = ((sets[i] & letter(l)) != 0) + ((sets[k] & letter(l)) != 0);
        if (users[at] > here) pair.keep |= letter(l);
        pair.work *= sizes[at];
        if ((pair.keep & letter(l)) != 0) pair.size *= sizes[at];
      }
      if (std::popcount(all & pair.keep) > kMaxRank) continue;
      if (best.second == 0 || std::pair(pair.work, pair.size) < std::pair(best.work, best.size))
        best = pair;
    }
  FIRN_CHECK(best.second > 0, "einsum", "sum over some letters first",
             "\"{}\": each product of two operands would have more than {} axes", shown(text),
             kMaxRank);
  return best;
}

}  // namespace

Tensor einsum(std::string_view text, std::initializer_list<Tensor> operands) {
  return einsum(text, span_of(operands));
}

Tensor einsum(std::string_view text, std::span<const Tensor> operands) try {
  FIRN_CHECK(!operands.empty(), "einsum", "give one tensor for each term", "\"{}\" has no operands",
             text);
  for (const Tensor& t : operands) {
    require_defined("einsum", t);
    if (operands.size() == 1) continue;
    require_floating("einsum", t);
    require_factors("einsum", operands[0], t);
  }
  const Equation equation(text, operands);
  const Letters result = set_of(equation.result);

  std::vector<Lettered> parts;
  std::array<int, kAll> users{};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    parts.push_back(without_ones(with_diagonals({operands[i], equation.letters[i]})));
    for (const std::int64_t l : parts[i].letters) ++users[static_cast<std::size_t>(l)];
  }
  Letters keep = result;
  for (int l = 0; l < kAll; ++l)
    if (users[static_cast<std::size_t>(l)] > 1) keep |= letter(l);
  for (Lettered& p : parts) p = summed_to(p, keep);

  while (parts.size() > 1) {
    const Pair pair = cheapest(text, parts, result);
    parts[pair.first] = contract(parts[pair.first], parts[pair.second], pair.keep, equation.result);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(pair.second));
  }
  return arranged(parts[0], equation.result);
}
FIRN_OUT_OF_MEMORY("einsum")

}  // namespace firn
