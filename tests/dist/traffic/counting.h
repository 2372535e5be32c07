// A group whose calls are counted on their way to another group.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "dist/transport.h"
#include "firn/tensor.h"

namespace firn::testing {

/// How often a rank has made a call of so many bytes (Call::bytes()) in the group of that name.
using Calls = std::map<std::tuple<std::string, std::string, std::int64_t>, std::int64_t>;

class Counting final : public dist::Transport {
 public:
  /// Groups that are split off have the names in `parts`, one after another.
  Counting(dist::Group inner, std::string name, std::vector<std::string> parts,
           std::shared_ptr<Calls> calls)
      : inner_(std::move(inner)),
        name_(std::move(name)),
        parts_(std::move(parts)),
        calls_(std::move(calls)) {}

  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  std::string_view kind() const noexcept override { return inner_.kind(); }
  double deadline() const noexcept override { return inner_.deadline(); }

  void run(const dist::Call& call, const void* from, void* to) override {
    note(call);
    const std::int64_t n = call.count, all = n * size();
    switch (call.kind) {
      case dist::CallKind::all_reduce:
        return inner_.all_reduce(at(to, n, call.dtype), call.reduce);
      case dist::CallKind::reduce_scatter:
        return inner_.reduce_scatter(at(from, all, call.dtype), at(to, n, call.dtype), call.reduce);
      case dist::CallKind::all_gather:
        return inner_.all_gather(at(from, n, call.dtype), at(to, all, call.dtype));
      case dist::CallKind::all_to_all:
        return inner_.all_to_all(at(from, all, call.dtype), at(to, all, call.dtype));
      case dist::CallKind::broadcast:
        return inner_.broadcast(at(to, n, call.dtype), call.root);
      default:
        return inner_.barrier();
    }
  }
  void exchange_messages(std::span<const dist::Message> messages) override {
    const dist::Message* sends = nullptr;
    const dist::Message* receives = nullptr;
    for (const dist::Message& t : messages) {
      note(t.call);
      (t.call.kind == dist::CallKind::send ? sends : receives) = &t;
    }
    const auto memory = [](const dist::Message& t) {
      return at(t.from ? t.from : t.to, t.call.count, t.call.dtype);
    };
    if (sends && receives)
      return inner_.send_recv(memory(*sends), sends->call.root, memory(*receives),
                              receives->call.root);
    if (sends) return inner_.send(memory(*sends), sends->call.root);
    inner_.recv(memory(*receives), receives->call.root);
  }
  void give_up(std::string_view why) noexcept override {
    dist::GroupAccess::transport(inner_)->give_up(why);
  }
  std::shared_ptr<Transport> split(const dist::SplitPart& part) override {
    std::string name = next_ < parts_.size() ? parts_[next_++] : name_;
    return std::make_shared<Counting>(inner_.split(part.index, part.rank), std::move(name),
                                      std::vector<std::string>(), calls_);
  }

 private:
  void note(const dist::Call& call) {
    if (size() > 1)
      ++(*calls_)[{name_, to_string(call.kind), static_cast<std::int64_t>(call.bytes())}];
  }

  /// A tensor on the caller's memory; what it holds does not matter but for sums.
  static Tensor at(const void* memory, std::int64_t count, DType dtype) {
    void* const p = const_cast<void*>(memory);  // NOLINT: Group only reads what it is to send
    switch (dtype) {
      case DType::f32:
        return from_memory(static_cast<float*>(p), {count});
      case DType::f64:
        return from_memory(static_cast<double*>(p), {count});
      case DType::i64:
        return from_memory(static_cast<std::int64_t*>(p), {count});
      case DType::bf16:
        return from_memory(static_cast<bfloat16*>(p), {count});
      default:
        FIRN_CHECK(dtype == DType::u8, "Counting", "add it here", "calls of {}", dtype);
        return from_memory(static_cast<std::uint8_t*>(p), {count});
    }
  }

  const dist::Group inner_;
  const std::string name_;
  const std::vector<std::string> parts_;
  std::size_t next_ = 0;
  const std::shared_ptr<Calls> calls_;
};

}  // namespace firn::testing
