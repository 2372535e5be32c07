// What the tests of profiles share: a small training, and checks that hold for every log of spans.
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"

namespace firn::testing {

struct ProfiledBlock : nn::Module {
  nn::Linear up, down;
  FIRN_MEMBERS(up, down)
  explicit ProfiledBlock(std::int64_t width) : up(width, width), down(width, width) {}
  Tensor forward(const Tensor& x) override { return down(gelu(up(x))); }
};

/// A residual, dropout, and a checkpointed block.
struct ProfiledNet : nn::Module {
  nn::Linear in, out;
  ProfiledBlock hidden;
  nn::Dropout dropout{0.1};
  FIRN_MEMBERS(in, out, hidden, dropout)
  explicit ProfiledNet(std::int64_t width = 32) : in(8, width), out(width, 4), hidden(width) {
    hidden.set_checkpoint(CheckpointOptions{});
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(in(x));
    return out(dropout(h + hidden(h)));
  }
};

inline data::TensorDataset profiled_rows(std::int64_t n) {
  Generator g(3);
  const Tensor x = randn({n, 8}, {.device = Device::cpu(), .generator = &g});
  return data::TensorDataset({x, argmax(x.slice(1, 0, 4))});
}

/// Every span lies within the one around it, and what is within adds up.
inline void check_nesting(const runtime::SpanLog& log) {
  std::map<std::uint32_t, std::vector<const runtime::SpanRecord*>> open;
  std::map<const runtime::SpanRecord*, std::uint64_t> inside;
  for (const runtime::SpanRecord& s : log.spans) {
    REQUIRE(s.start <= s.end);
    REQUIRE(s.end <= log.ns);
    auto& stack = open[s.thread];
    while (!stack.empty() && stack.back()->end <= s.start && stack.back()->end < s.end)
      stack.pop_back();
    if (!stack.empty()) {
      INFO(s.name << " in " << stack.back()->name);
      REQUIRE(stack.back()->start <= s.start);
      REQUIRE(s.end <= stack.back()->end);
      inside[stack.back()] += s.end - s.start;
    }
    stack.push_back(&s);
  }
  for (const runtime::SpanRecord& s : log.spans) {
    INFO(to_string(s.kind) << " " << s.name);
    REQUIRE(inside[&s] == s.inside);
  }
}

/// What the totals say is what the spans say, if none was left out.
inline void check_totals(const runtime::SpanLog& log) {
  REQUIRE(log.left_out == 0);
  REQUIRE(log.lost == 0);
  std::uint64_t calls = 0, ns = 0, own = 0, of_spans = 0, own_of_spans = 0;
  for (const runtime::SpanTotal& t : log.totals) {
    calls += t.calls;
    ns += t.ns;
    own += t.self_ns;
  }
  for (const runtime::SpanRecord& s : log.spans) {
    if (!s.again) of_spans += s.end - s.start;
    own_of_spans += s.end - s.start - s.inside;
  }
  CHECK(calls == log.spans.size());
  CHECK(ns == of_spans);
  CHECK(own == own_of_spans);
}

inline const ProfileRow* find_row(const std::vector<ProfileRow>& rows, const std::string& name,
                                  bool backward = false) {
  for (const ProfileRow& r : rows)
    if (r.name == name && r.backward == backward) return &r;
  return nullptr;
}
inline ProfileRow row(const std::vector<ProfileRow>& rows, const std::string& name,
                      bool backward = false) {
  const ProfileRow* const found = find_row(rows, name, backward);
  INFO(name << (backward ? " backward" : ""));
  REQUIRE(found);
  return *found;
}

}  // namespace firn::testing
