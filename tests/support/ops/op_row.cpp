#include "support/ops/op_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/dry_run.h"
#include "support/ops/op_check.h"

namespace firn::testing {

Arg real(double low, double high, std::vector<double> avoid) {
  Arg a;
  a.low = low;
  a.high = high;
  a.avoid = std::move(avoid);
  return a;
}
Arg apart(double low, double high, double phase) {
  Arg a = real(low, high);
  a.phase = phase;
  a.apart = true;
  return a;
}
Arg constant(double low, double high) {
  Arg a = real(low, high);
  a.differentiable = false;
  return a;
}
Arg whole(double low, double high) {
  Arg a = real(low, high);
  a.whole = true;
  return a;
}
Arg whole_constant(double low, double high) {
  Arg a = constant(low, high);
  a.whole = true;
  return a;
}
Arg index(std::int64_t classes) {
  Arg a;
  a.kind = Arg::Kind::index;
  a.classes = classes;
  a.differentiable = false;
  return a;
}
Arg index_or(std::int64_t classes, std::int64_t special) {
  Arg a = index(classes);
  a.special = static_cast<double>(special);
  a.has_special = true;
  return a;
}
Arg mask() {
  Arg a;
  a.kind = Arg::Kind::boolean;
  a.differentiable = false;
  return a;
}

bool OpRow::differentiable() const {
  return std::any_of(args.begin(), args.end(), [](const Arg& a) { return a.differentiable; });
}

namespace {

std::vector<OpRow>& table();

constexpr std::array kPlain{Layout::contiguous};
constexpr std::array kStrided{Layout::transposed, Layout::channels_last, Layout::stepped,
                              Layout::offset, Layout::expanded};

/// Calls section(name, check) for every check of a row.
template <class Section>
void for_each_check(const OpRow& row, Section&& section) {
  if (row.differentiable() && row.smooth) section("gradient (f64)", [&] { check_gradient(row); });
  if (row.differentiable() && row.smooth && !on_slow_device())
    section("second derivative (f64)", [&] { check_second_derivative(row); });
  for (const DType t : {f32, f16, bf16})
    section(fmt::format("{} against f64", to_string(t)),
            [&] { check_against_double(row, t, kPlain); });
  for (const DType t : {f16, bf16})
    section(fmt::format("{} is f32 rounded once", to_string(t)),
            [&] { check_rounded_once(row, t); });
  section("non-contiguous operands", [&] { check_against_double(row, f32, kStrided); });
  if (row.golden) section("against PyTorch", [&] { check_golden(row); });
  if (row.integers) section("integers", [&] { check_integers(row); });
  if (row.in_place) section("in place", [&] { check_in_place(row); });
  section("dry run", [&] { check_dry_run(row); });
}

// A row as Catch sees it. It is found by position: the table may still grow.
class RowCase final : public Catch::ITestInvoker {
 public:
  explicit RowCase(std::size_t row) : row_(row) {}
  void invoke() const override {
    const OpRow& row = table()[row_];
    INFO("row " << row.name << ", seed " << seed_of(row.name));
    for_each_check(row, [](const std::string& name, const auto& check) {
      DYNAMIC_SECTION(name) { check(); }
    });
  }

 private:
  std::size_t row_;
};

std::vector<OpRow>& table() {
  static std::vector<OpRow> rows;
  return rows;
}

void add_case(std::size_t row) {
  const Catch::NameAndTags name{table()[row].name, "[ops]"};
  // The object's constructor is what registers.
#if __has_include(<catch2/catch_all.hpp>)
  Catch::AutoReg registrar(Catch::Detail::make_unique<RowCase>(row), CATCH_INTERNAL_LINEINFO,
                           Catch::StringRef(), name);
#else
  Catch::AutoReg registrar(new RowCase(row), CATCH_INTERNAL_LINEINFO, Catch::StringRef(), name);
#endif
}

}  // namespace

const std::vector<OpRow>& rows() { return table(); }

Row::~Row() {
  table().push_back(std::move(row_));
  add_case(table().size() - 1);
}

void measure_rows(std::string_view part) {
  for (const OpRow& row : rows()) {
    if (row.perf_shapes.empty() || row.name.find(part) == std::string::npos) continue;
    OpRow large = row;
    large.shapes = {row.perf_shapes};
    const auto values = operand_values(large, 0);
    for (DType t : {f32, f16, bf16}) {
      const NoGrad guard;
      Args operands;
      double bytes = 0;
      for (std::size_t i = 0; i < row.args.size(); ++i) {
        const DType dtype = row.args[i].kind == Arg::Kind::real    ? t
                            : row.args[i].kind == Arg::Kind::index ? i64
                                                                   : boolean;
        operands.push_back(make(values[i], row.perf_shapes[i], dtype));
        bytes += static_cast<double>(operands.back().bytes());
      }
      bytes += static_cast<double>(row.op(operands).bytes());
      double best = 1e300, spent = 0;
      for (int run = 0; run < 100 && spent < 0.5; ++run) {
        const auto start = std::chrono::steady_clock::now();
        const Tensor y = row.op(operands);
        synchronize(y.device());
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
        spent += took.count();
      }
      if (row.perf_flops > 0) {
        fmt::print("{:32} {:5} {:10.1f} us {:8.1f} GFLOP/s\n", row.name, to_string(t), best * 1e6,
                   row.perf_flops / best * 1e-9);
      } else {
        fmt::print("{:32} {:5} {:10.1f} us {:8.1f} GB/s\n", row.name, to_string(t), best * 1e6,
                   bytes / best * 1e-9);
      }
    }
  }
}

}  // namespace firn::testing
