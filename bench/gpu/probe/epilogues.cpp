// Values of the epilogues for which firn's contract is exact (ReLU and its mask) or the library
// chooses the accuracy (GELU).
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "bench/gpu/probe/probes.h"
#include "bench/gpu/probe/product.h"
#include "firn/half.h"
#include "kernels/math/unary.h"

namespace probe {
namespace {

using firn::DType;
namespace math = firn::math;

constexpr std::int64_t kInner = 8, kColumns = 8;

float rounded(float v, DType t) {
  return t == DType::f16 ? float(firn::half(v)) : t == DType::bf16 ? float(firn::bfloat16(v)) : v;
}

std::string text_of(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", v);
  return text;
}

/// A product whose result before the epilogue is alpha x[i] in each of its columns: one term is
/// x[i] * 1, the others are 0.
struct Column {
  Product product;
  std::vector<float> y;  ///< values of the first column

  Column(cublasLtEpilogue_t epilogue, DType t, const std::vector<float>& x, float alpha = 1)
      : product({.in = t,
                 .out = t,
                 .epilogue = epilogue,
                 .m = static_cast<std::int64_t>(x.size()),
                 .n = kColumns,
                 .k = kInner,
                 .transpose_a = true,
                 .alpha = alpha}),
        dtype(t) {
    std::vector<float> a(x.size() * kInner, 0.0f), b(kInner * kColumns, 0.0f);
    for (std::size_t i = 0; i < x.size(); ++i) a[i * kInner] = x[i];
    for (std::size_t j = 0; j < kColumns; ++j) b[j * kInner] = 1;
    product.a().put(a, t);
    product.b().put(b, t);
  }
  void run(std::size_t rows) {
    const cublasLtHandle_t handle = new_handle();
    const WorkStream stream;
    const Found found = product.search(handle);
    if (found.count == 0) throw std::runtime_error("no algorithm (" + name_of(found.status) + ")");
    const auto status = product.run(handle, found, stream.get());
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(name_of(status));
    stream.wait();
    y = product.d().values(rows, dtype);
  }

 private:
  DType dtype;
};

// ---- ReLU ----

/// -0 is tested last by its own product: a sum that starts at 0 is never -0, but alpha = -1 makes
/// it so.
std::vector<float> relu_inputs() {
  const float infinity = std::numeric_limits<float>::infinity();
  return {0.0f, std::nanf(""), 1.0f, -1.0f, infinity, -infinity};
}

std::string relu(cublasLtEpilogue_t epilogue, DType t, bool mask) {
  constexpr std::size_t kRows = 128;  // bits of the mask
  std::string text;
  bool as_firn = true;
  const auto one = [&](const std::vector<float>& x, float alpha) {
    std::vector<float> rows(kRows, 0.0f);
    std::copy(x.begin(), x.end(), rows.begin());
    Column column(epilogue, t, rows, alpha);
    column.run(kRows);
    const auto bits = mask ? column.product.aux().bytes(kRows / 8) : std::vector<unsigned char>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float before = alpha * x[i], y = column.y[i];
      const float wanted = math::Relu::f(before, {});
      // A zero's sign does not matter to firn.
      as_firn = as_firn && (y == wanted || (std::isnan(y) && std::isnan(wanted)));
      text += (text.empty() ? "" : ", ") + text_of(before) + ": " + text_of(y);
      if (mask) {
        const bool bit = bits[i / 8] >> (i % 8) & 1;
        as_firn = as_firn && bit == (math::Relu::df(1.0f, before, {}) != 0);
        text += std::string(" bit ") + (bit ? "1" : "0");
      }
    }
  };
  one(relu_inputs(), 1);
  one({0.0f}, -1);
  return text + (as_firn ? "; as firn's kernel" : "; UNLIKE firn's kernel");
}

// ---- GELU ----

double tanh_form(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
double erf_form(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }
double tanh_form_slope(double x) {
  constexpr double c = 0.79788456080286535588;
  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

std::vector<float> gelu_inputs(DType t) {
  constexpr int kSteps = 1024;
  std::vector<float> x;
  for (int i = 0; i < kSteps; ++i)
    x.push_back(rounded(-10 + 20 * static_cast<float>(i) / (kSteps - 1), t));
  return x;
}

struct Error {
  double largest = 0, at = 0;
  void note(double error, double x) {
    if (!(std::abs(error) <= largest)) largest = std::abs(error), at = x;  // a NaN counts
  }
};

/// Returns the largest error with respect to both forms of GELU, or of the derivative, and that of
/// a correct result rounded to the dtype.
std::string gelu(cublasLtEpilogue_t epilogue, DType t) {
  const bool slope = epilogue == CUBLASLT_EPILOGUE_DGELU;
  const std::vector<float> x = gelu_inputs(t);
  Column column(epilogue, t, slope ? std::vector<float>(x.size(), 1.0f) : x);
  if (slope) {  // the values before the activation, in every column
    std::vector<float> aux;
    for (std::int64_t j = 0; j < kColumns; ++j) aux.insert(aux.end(), x.begin(), x.end());
    column.product.aux().put(aux, t);
  }
  column.run(x.size());
  Error from_tanh, from_erf, rounding;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], wanted = slope ? tanh_form_slope(v) : tanh_form(v);
    from_tanh.note(column.y[i] - wanted, v);
    if (!slope) from_erf.note(column.y[i] - erf_form(v), v);
    rounding.note(rounded(static_cast<float>(wanted), t) - wanted, v);
  }
  return "greatest error " + text_of(from_tanh.largest) + " at " + text_of(from_tanh.at) +
         (slope ? "" : ", of the erf form " + text_of(from_erf.largest)) + ", of rounding alone " +
         text_of(rounding.largest);
}

}  // namespace

void add_epilogues(std::vector<Step>& steps) {
  struct Named {
    const char* name;
    cublasLtEpilogue_t epilogue;
    bool mask = false;
  };
  static constexpr Named kRelus[] = {{"RELU", CUBLASLT_EPILOGUE_RELU},
                                     {"RELU_BIAS", CUBLASLT_EPILOGUE_RELU_BIAS},
                                     {"RELU_AUX", CUBLASLT_EPILOGUE_RELU_AUX, true},
                                     {"RELU_AUX_BIAS", CUBLASLT_EPILOGUE_RELU_AUX_BIAS, true}};
  static constexpr Named kGelus[] = {{"GELU", CUBLASLT_EPILOGUE_GELU},
                                     {"GELU_AUX", CUBLASLT_EPILOGUE_GELU_AUX},
                                     {"DGELU", CUBLASLT_EPILOGUE_DGELU}};
  for (const DType t : {DType::f16, DType::bf16, DType::f32}) {
    const std::string dtype = firn::to_string(t);
    for (const Named& n : kRelus)
      steps.push_back({"values of " + dtype + " " + n.name,
                       [&n, t](Line& line) { line.add(relu(n.epilogue, t, n.mask)); }});
    for (const Named& n : kGelus)
      steps.push_back({"values of " + dtype + " " + n.name,
                       [&n, t](Line& line) { line.add(gelu(n.epilogue, t)); }});
  }
}

}  // namespace probe
