#include "dist/checks.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "firn/firn.h"
#include "firn/runtime/storage.h"

namespace firn::test {
namespace {

using dist::Group;
using dist::Reduce;

constexpr DType kCombined[] = {f32, f64, i32, i64, u8};
constexpr Reduce kReduces[] = {Reduce::sum, Reduce::max, Reduce::min};

template <class T>
constexpr bool kCombines = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// Floats of many magnitudes, so that the order of a sum shows; now and then one that is not
/// finite.
template <class T>
T element(std::uint64_t salt, int rank, std::int64_t i) {
  const std::uint64_t h =
      mixed(salt, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
  if constexpr (std::is_same_v<T, bool>) {
    return h % 2 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(h);
  } else if constexpr (!std::is_arithmetic_v<T>) {
    return T(static_cast<float>(h % 2001) - 1000.f);
  } else {
    if (h % 301 == 0) return std::numeric_limits<T>::quiet_NaN();
    if (h % 303 == 1) return std::numeric_limits<T>::infinity();
    if (h % 305 == 2) return -std::numeric_limits<T>::infinity();
    return static_cast<T>(
        std::ldexp(static_cast<double>(h >> 40) - 8388608.0, static_cast<int>(h % 41) - 20));
  }
}

template <class T>
T combined(Reduce op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (op == Reduce::sum) return a + b;
  } else if (op == Reduce::sum) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
  return op == Reduce::max ? (a > b ? a : b) : (a < b ? a : b);
}

template <class T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b;
  } else {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  }
}

/// On the group's device.
template <class T, class Fn>
Tensor filled(const Group& group, std::int64_t count, const Fn& value) {
  const Tensor t = empty({count}, dtype_of<T>, Device::cpu());
  for (std::int64_t i = 0; i < count; ++i) t.data<T>()[i] = value(i);
  return t.to(group.device());
}
template <class T, class Fn>
void compare(const Group& group, const Trial& trial, const Tensor& result, const Fn& expected) {
  const Tensor got = result.to(Device::cpu());
  for (std::int64_t i = 0; i < got.numel(); ++i)
    if (!same(got.data<T>()[i], expected(i)))
      throw std::runtime_error("rank " + std::to_string(group.rank()) + " of " +
                               std::to_string(group.size()) + ": element " + std::to_string(i) +
                               " is wrong after " + describe(trial));
}

void require(bool condition, const Trial& trial, const char* what) {
  if (!condition) throw std::runtime_error(std::string(what) + " after " + describe(trial));
}

/// The bytes are the same on all ranks.
void check_same_bytes(const Group& group, const Trial& trial, const Tensor& result) {
  const Tensor t = result.to(Device::cpu());
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = static_cast<const unsigned char*>(t.view().data);
  for (std::size_t i = 0; i < t.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  const Tensor own =
      filled<std::int64_t>(group, 1, [&](auto) { return static_cast<std::int64_t>(hash); });
  const Tensor gathered = empty({group.size()}, i64, group.device());
  group.all_gather(own, gathered);
  const Tensor all = gathered.to(Device::cpu());
  for (int r = 0; r < group.size(); ++r)
    require(all.data<std::int64_t>()[r] == all.data<std::int64_t>()[0], trial, "ranks differ");
}

template <class T>
void check_as(const Group& group, const Trial& trial) {
  const int rank = group.rank(), size = group.size();
  const std::int64_t n = trial.count;
  const auto given = [&](int r, std::int64_t i) { return element<T>(trial.salt, r, i); };
  const auto own = [&](std::int64_t i) { return given(rank, i); };
  const auto reduced = [&](std::int64_t i) {
    T value = given(0, i);
    if constexpr (kCombines<T>)
      for (int r = 1; r < size; ++r) value = combined(trial.op, value, given(r, i));
    return value;
  };
  const auto version = [](const Tensor& t) { return t.storage()->version(); };
  switch (trial.call) {
    case Collective::all_reduce: {
      const Tensor x = filled<T>(group, n, own);
      const auto before = version(x);
      group.all_reduce(x, trial.op);
      compare<T>(group, trial, x, reduced);
      require(version(x) == before + 1, trial, "no in-place write is counted");
      return check_same_bytes(group, trial, x);
    }
    case Collective::reduce_scatter: {
      const Tensor x = filled<T>(group, n * size, own);
      const Tensor part = trial.in_place ? x.slice(0, n * rank, n * (rank + 1))
                                         : filled<T>(group, n, [](auto) { return T(1); });
      group.reduce_scatter(x, part, trial.op);
      compare<T>(group, trial, part, [&](std::int64_t i) { return reduced(n * rank + i); });
      if (!trial.in_place) compare<T>(group, trial, x, own);
      return;
    }
    case Collective::all_gather: {
      const Tensor all = filled<T>(group, n * size, [](auto) { return T(1); });
      const Tensor part = trial.in_place ? all.slice(0, n * rank, n * (rank + 1))
                                         : empty({n}, trial.dtype, group.device());
      part.copy_(filled<T>(group, n, own));
      const auto before = version(all);
      group.all_gather(part, all);
      require(version(all) == before + 1, trial, "no in-place write is counted");
      return compare<T>(group, trial, all,
                        [&](std::int64_t i) { return given(static_cast<int>(i / n), i % n); });
    }
    case Collective::all_to_all: {
      const Tensor from = filled<T>(group, n * size, own);
      const Tensor to = filled<T>(group, n * size, [](auto) { return T(1); });
      group.all_to_all(from, to);
      compare<T>(group, trial, from, own);
      return compare<T>(group, trial, to, [&](std::int64_t i) {
        return given(static_cast<int>(i / n), n * rank + i % n);
      });
    }
    case Collective::broadcast: {
      const Tensor x = filled<T>(group, n, own);
      group.broadcast(x, trial.root);
      return compare<T>(group, trial, x, [&](std::int64_t i) { return given(trial.root, i); });
    }
    case Collective::barrier:
      return group.barrier();
  }
}

}  // namespace

std::uint64_t mixed(std::uint64_t salt, std::uint64_t rank, std::uint64_t i) {
  std::uint64_t z = salt * 0xd1342543de82ef95u + rank * 0x9e3779b97f4a7c15u + i + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string describe(const Trial& t) {
  constexpr const char* calls[] = {"all_reduce", "reduce_scatter", "all_gather",
                                   "all_to_all", "broadcast",      "barrier"};
  return std::string(calls[static_cast<int>(t.call)]) + " " + to_string(t.dtype) + " x " +
         std::to_string(t.count) + ", op " + std::to_string(static_cast<int>(t.op)) + ", root " +
         std::to_string(t.root) + ", salt " + std::to_string(t.salt) +
         (t.in_place ? ", in place" : "");
}

void check(const dist::Group& group, const Trial& trial) {
  visit(trial.dtype, [&]<class T>() { check_as<T>(group, trial); });
}

int check_every_call(const dist::Group& group, const std::vector<std::int64_t>& counts) {
  int calls = 0;
  const auto run = [&](Trial trial) {
    trial.salt = static_cast<std::uint64_t>(++calls);
    check(group, trial);
  };
  for (const std::int64_t count : counts) {
    for (const DType dtype : kCombined)
      for (const Reduce op : kReduces) {
        run({.call = Collective::all_reduce, .dtype = dtype, .op = op, .count = count});
        for (const bool in_place : {false, true})
          run({.call = Collective::reduce_scatter,
               .dtype = dtype,
               .op = op,
               .count = count,
               .in_place = in_place});
      }
    for (int i = 0; i < kDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      for (const bool in_place : {false, true})
        run({.call = Collective::all_gather, .dtype = dtype, .count = count, .in_place = in_place});
      run({.call = Collective::all_to_all, .dtype = dtype, .count = count});
      for (int root = 0; root < group.size(); ++root)
        run({.call = Collective::broadcast, .dtype = dtype, .count = count, .root = root});
      run({.call = Collective::barrier});
    }
  }
  return calls;
}

int check_messages(const Group& group, const std::vector<std::int64_t>& counts) {
  const int rank = group.rank(), size = group.size();
  int messages = 0;
  for (const std::int64_t n : counts)
    for (int code = 0; code < kDTypes; ++code)
      visit(static_cast<DType>(code), [&]<class T>() {
        const Trial trial{
            .dtype = dtype_of<T>, .count = n, .salt = static_cast<std::uint64_t>(n) + 7};
        const auto of = [&](int r) {
          return [&trial, r](std::int64_t i) { return element<T>(trial.salt, r, i); };
        };
        const Tensor x = filled<T>(group, n, of(rank));
        const Tensor y = filled<T>(group, n, [](auto) { return T(1); });
        const auto took = [&](int from) {
          ++messages;
          compare<T>(group, trial, y, of(from));
        };
        for (int from = 0; from < size; ++from)
          for (int to = 0; to < size; ++to) {
            if (from == to || (rank != from && rank != to)) continue;
            if (rank == from) {
              group.send(x, to);
              ++messages;
            } else {
              group.recv(y, from);
              took(from);
            }
          }
        if (size == 1) return;
        const auto before = y.storage()->version();
        group.send_recv(x, (rank + 1) % size, y, (rank + size - 1) % size);
        require(y.storage()->version() == before + 1, trial, "no in-place write is counted");
        took((rank + size - 1) % size);
        compare<T>(group, trial, x, of(rank));
      });
  return messages;
}

void check_splits(const Group& group) {
  const int rank = group.rank(), size = group.size();
  const Trial trial{.call = Collective::barrier};
  // Odd and even ranks, in their order and turned round; then each part halved once more.
  for (const int direction : {1, -1, 0}) {
    const Group part = group.split(rank % 2 == 0 ? -5 : 1 << 30, direction * rank);
    const int members = (size + 1 - rank % 2) / 2, place = rank / 2;
    require(part.size() == members, trial, "a part has another size");
    require(part.rank() == (direction < 0 ? members - 1 - place : place), trial,
            "a part has another order");
    require(part.size() == 1 || part.kind() == group.kind(), trial, "a part is of another kind");
    require(part.size() == 1 || part.deadline() == group.deadline(), trial,
            "a part has another deadline");
    check_random_calls(part, static_cast<std::uint64_t>(4 + rank % 2), 5, 300);
    check_messages(part, {3});
    const Group small = part.split(part.rank() / 2);
    check_random_calls(small, static_cast<std::uint64_t>(6 + rank % 2), 5, 300);
  }
  const Group alone = group.split(rank);
  require(alone.size() == 1 && alone.rank() == 0, trial, "a part of one has others");
  check_random_calls(alone, 9, 5, 300);
  const Group all = group.split(0, size - rank);
  require(all.size() == size && all.rank() == size - 1 - rank, trial, "not all turned round");
  check_every_call(all, {5});
  check_random_calls(group, 10, 5, 300);
}

void check_random_calls(const dist::Group& group, std::uint64_t seed, int calls,
                        std::int64_t most) {
  for (int i = 0; i < calls; ++i) {
    std::uint64_t n = 0;
    const auto draw = [&](std::uint64_t below) {
      return mixed(seed, static_cast<std::uint64_t>(i), ++n) % below;
    };
    Trial trial{.call = static_cast<Collective>(draw(6))};
    const bool combines = trial.call <= Collective::reduce_scatter;
    trial.dtype = combines ? kCombined[draw(5)] : static_cast<DType>(draw(kDTypes));
    trial.op = kReduces[draw(3)];
    trial.count = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(most)) >> draw(16));
    trial.root = static_cast<int>(draw(static_cast<std::uint64_t>(group.size())));
    trial.salt = seed * 1000 + static_cast<std::uint64_t>(i);
    trial.in_place = draw(2) == 0;
    check(group, trial);
  }
}

}  // namespace firn::test
