// How scripts/interop and its runner talk: requests with an operation's name, its arguments and
// seeds for backward; answers with results and gradients. Little-endian; tests/interop/wire.py has
// the other end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "firn/firn.h"

namespace firn::interop {

/// The operation cannot take these arguments; scripts/interop looks the reason up in its list.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string,
                           std::vector<std::int64_t>, Tensor, std::vector<Tensor>>;

/// The arguments of one call, by the names that the table gives them.
class Arguments {
 public:
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }

  /// Whether the caller gave it, and not None.
  bool has(const std::string& name) const {
    const auto it = values_.find(name);
    return it != values_.end() && !std::holds_alternative<std::monostate>(it->second);
  }
  template <class T>
  bool is(const std::string& name) const {
    return has(name) && std::holds_alternative<T>(values_.at(name));
  }

  const Tensor& tensor(const std::string& name) const { return get<Tensor>(name, "a tensor"); }
  /// Undefined if it is not given.
  Tensor tensor_or_none(const std::string& name) const {
    return has(name) ? tensor(name) : Tensor();
  }
  const std::vector<Tensor>& tensors(const std::string& name) const {
    return get<std::vector<Tensor>>(name, "a list of tensors");
  }
  std::int64_t integer(const std::string& name) const {
    return get<std::int64_t>(name, "an integer");
  }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    return has(name) ? integer(name) : otherwise;
  }
  double number(const std::string& name) const {
    if (is<std::int64_t>(name)) return static_cast<double>(integer(name));
    if (is<bool>(name)) return flag(name, false) ? 1 : 0;
    return get<double>(name, "a number");
  }
  double number(const std::string& name, double otherwise) const {
    return has(name) ? number(name) : otherwise;
  }
  bool flag(const std::string& name, bool otherwise) const {
    return has(name) ? get<bool>(name, "a bool") : otherwise;
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    return has(name) ? get<std::string>(name, "a string") : otherwise;
  }
  /// A list of integers, one integer as a list of one, or an empty list if it is not given.
  std::vector<std::int64_t> list(const std::string& name) const {
    if (!has(name)) return {};
    if (is<std::int64_t>(name)) return {integer(name)};
    return get<std::vector<std::int64_t>>(name, "a list of integers");
  }

  /// Every tensor that collects a gradient, in the order of the request.
  std::vector<Tensor> leaves;
  /// The call is only timed (timing.h): its result may be random, and ties need no check.
  bool timed = false;

 private:
  template <class T>
  const T& get(const std::string& name, const char* what) const {
    const auto it = values_.find(name);
    if (it == values_.end()) throw Refused("argument '" + name + "' is not given");
    if (const T* value = std::get_if<T>(&it->second)) return *value;
    throw Refused("argument '" + name + "' is not " + what);
  }

  std::map<std::string, Value> values_;
};

struct Request {
  std::string op;
  Arguments arguments;
  std::vector<Tensor> seeds;  ///< one for each result; undefined if nothing flows back from it
  /// One for each leaf, if second derivatives are asked for: of the sum of the leaves' gradients
  /// times these, with respect to all leaves and then all defined seeds. Else none.
  std::vector<Tensor> second_seeds;
};

/// False at the end of the stream.
bool read(std::FILE* from, Request& request);
void write_table(std::FILE* to, const std::vector<std::string>& lines);
void write_results(std::FILE* to, const std::vector<Tensor>& results,
                   const std::vector<Tensor>& gradients);
void write_refusal(std::FILE* to, const std::string& reason);
void write_seconds(std::FILE* to, double seconds);

}  // namespace firn::interop
