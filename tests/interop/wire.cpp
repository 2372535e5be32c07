#include "interop/wire.h"

#include <array>

namespace firn::interop {
namespace {

constexpr std::array kDTypes = {f32, f64, i64, i32, u8, boolean, f16, bf16};

void read_bytes(std::FILE* from, void* to, std::size_t bytes) {
  if (bytes > 0 && std::fread(to, 1, bytes, from) != bytes)
    throw std::runtime_error("interop: the request ends early");
}

template <class T>
T number(std::FILE* from) {
  T value{};
  read_bytes(from, &value, sizeof value);
  return value;
}

std::string text(std::FILE* from) {
  std::string out(number<std::uint32_t>(from), '\0');
  read_bytes(from, out.data(), out.size());
  return out;
}

std::vector<std::int64_t> integers(std::FILE* from) {
  std::vector<std::int64_t> out(number<std::uint32_t>(from));
  read_bytes(from, out.data(), out.size() * sizeof out[0]);
  return out;
}

template <class List>
List list_of(const std::vector<std::int64_t>& values) {
  List out;
  for (const std::int64_t v : values) out.push_back(v);
  return out;
}

/// The elements of PyTorch's storage, and a view of them with its shape and strides.
Tensor tensor(std::FILE* from, std::vector<Tensor>& leaves) {
  const DType dtype = kDTypes.at(number<std::uint8_t>(from));
  const bool collects = number<std::uint8_t>(from) != 0;
  const auto shape = integers(from), strides = integers(from);
  const auto count = number<std::int64_t>(from);
  const Tensor all = empty(Shape{count}, dtype, Device::cpu());
  read_bytes(from, all.mutable_view().data, all.bytes());
  Tensor out = all.as_strided(list_of<Shape>(shape), list_of<Strides>(strides));
  if (collects) {
    out.set_requires_grad();
    leaves.push_back(out);
  }
  return out;
}

Value value(std::FILE* from, std::vector<Tensor>& leaves) {
  switch (number<char>(from)) {
    case 'n':
      return std::monostate{};
    case 'b':
      return number<std::uint8_t>(from) != 0;
    case 'i':
      return number<std::int64_t>(from);
    case 'd':
      return number<double>(from);
    case 's':
      return text(from);
    case 'l':
      return integers(from);
    case 't':
      return tensor(from, leaves);
    case 'T': {
      std::vector<Tensor> out(number<std::uint32_t>(from));
      for (Tensor& t : out) t = tensor(from, leaves);
      return out;
    }
    default:
      throw std::runtime_error("interop: an argument of an unknown kind");
  }
}

template <class T>
void put(std::FILE* to, T number) {
  std::fwrite(&number, sizeof number, 1, to);
}

void put(std::FILE* to, const std::string& text) {
  put(to, static_cast<std::uint32_t>(text.size()));
  std::fwrite(text.data(), 1, text.size(), to);
}

void put(std::FILE* to, const std::vector<Tensor>& tensors) {
  put(to, static_cast<std::uint32_t>(tensors.size()));
  for (const Tensor& t : tensors) {
    put(to, static_cast<std::uint8_t>(t.defined()));
    if (!t.defined()) continue;
    const Tensor rows = contiguous(t.detach());
    std::uint8_t code = 0;
    while (kDTypes.at(code) != rows.dtype()) ++code;
    put(to, code);
    put(to, static_cast<std::uint32_t>(rows.rank()));
    for (int i = 0; i < rows.rank(); ++i) put(to, rows.size(i));
    std::fwrite(rows.view().data, 1, rows.bytes(), to);
  }
}

}  // namespace

bool read(std::FILE* from, Request& request) {
  const int first = std::fgetc(from);
  if (first == EOF) return false;
  std::ungetc(first, from);
  request = {};
  request.op = text(from);
  const auto count = number<std::uint32_t>(from);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string name = text(from);
    request.arguments.set(name, value(from, request.arguments.leaves));
  }
  std::vector<Tensor> none;
  for (std::vector<Tensor>* seeds : {&request.seeds, &request.second_seeds}) {
    seeds->resize(number<std::uint32_t>(from));
    for (Tensor& seed : *seeds)
      if (number<std::uint8_t>(from) != 0) seed = tensor(from, none);
  }
  return true;
}

void write_table(std::FILE* to, const std::vector<std::string>& lines) {
  put(to, static_cast<std::uint32_t>(lines.size()));
  for (const std::string& line : lines) put(to, line);
  std::fflush(to);
}

void write_results(std::FILE* to, const std::vector<Tensor>& results,
                   const std::vector<Tensor>& gradients) {
  put(to, std::uint8_t{1});
  put(to, results);
  put(to, gradients);
  std::fflush(to);
}

void write_refusal(std::FILE* to, const std::string& reason) {
  put(to, std::uint8_t{0});
  put(to, reason);
  std::fflush(to);
}

void write_seconds(std::FILE* to, double seconds) {
  put(to, std::uint8_t{1});
  put(to, seconds);
  std::fflush(to);
}

}  // namespace firn::interop
