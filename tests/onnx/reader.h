// Reads ONNX files back, as far as the tests compare them: an independent reader of the wire
// format, with the field numbers of onnx.proto.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace firn::testing {

struct WireField {
  int number;
  std::uint64_t value;    ///< of a varint, or the bits of a float
  std::string_view text;  ///< of bytes
};

inline std::uint64_t wire_varint(std::string_view& s) {
  std::uint64_t x = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (s.empty()) throw std::runtime_error("a number is cut off");
    const auto byte = static_cast<std::uint8_t>(s[0]);
    s.remove_prefix(1);
    x |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return x;
  }
  throw std::runtime_error("a number is too long");
}

inline std::vector<WireField> wire_fields(std::string_view s) {
  std::vector<WireField> out;
  while (!s.empty()) {
    const std::uint64_t key = wire_varint(s);
    WireField f{static_cast<int>(key >> 3), 0, {}};
    const auto take = [&s](std::uint64_t n) {
      if (n > s.size()) throw std::runtime_error("a field is cut off");
      const std::string_view t = s.substr(0, n);
      s.remove_prefix(n);
      return t;
    };
    if ((key & 7) == 0) {
      f.value = wire_varint(s);
    } else if ((key & 7) == 2) {
      f.text = take(wire_varint(s));
    } else if ((key & 7) == 5) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, take(4).data(), 4);
      f.value = bits;
    } else {
      throw std::runtime_error("a wire type that ONNX does not need");
    }
    out.push_back(f);
  }
  return out;
}

struct OnnxNode {
  std::string type, name;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, float> numbers;
  std::map<std::string, std::string> texts;
};
struct OnnxTensor {
  std::int64_t dtype = 0;
  std::vector<std::int64_t> shape;
  std::string bytes;
  std::vector<float> floats() const {
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};
struct OnnxEnd {
  std::string name;
  std::int64_t dtype = 0;
  std::vector<std::string> shape;  ///< numbers or symbols
};
struct OnnxFile {
  std::int64_t ir_version = 0, opset = 0;
  std::string producer, doc;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxEnd> inputs, outputs;
  std::map<std::string, OnnxTensor> initializers;

  std::vector<std::string> types() const {
    std::vector<std::string> out;
    for (const OnnxNode& n : nodes) out.push_back(n.type);
    return out;
  }
  const OnnxNode& node(const std::string& type) const {
    for (const OnnxNode& n : nodes)
      if (n.type == type) return n;
    throw std::runtime_error("there is no node " + type);
  }
};

inline OnnxNode onnx_node(std::string_view bytes) {
  OnnxNode n;
  for (const WireField& f : wire_fields(bytes)) {
    if (f.number == 1) n.inputs.emplace_back(f.text);
    if (f.number == 2) n.outputs.emplace_back(f.text);
    if (f.number == 3) n.name = f.text;
    if (f.number == 4) n.type = f.text;
    if (f.number != 5) continue;
    std::string name;
    for (const WireField& a : wire_fields(f.text)) {
      if (a.number == 1) name = a.text;
      if (a.number == 2) {
        const auto bits = static_cast<std::uint32_t>(a.value);
        std::memcpy(&n.numbers[name], &bits, 4);
      }
      if (a.number == 3 || a.number == 8)
        n.integers[name].push_back(static_cast<std::int64_t>(a.value));
      if (a.number == 4 || a.number == 9) n.texts[name] += a.text;
    }
  }
  return n;
}

inline OnnxEnd onnx_end(std::string_view bytes) {
  OnnxEnd e;
  for (const WireField& f : wire_fields(bytes)) {
    if (f.number == 1) e.name = f.text;
    if (f.number != 2) continue;
    for (const WireField& t : wire_fields(wire_fields(f.text).at(0).text)) {
      if (t.number == 1) e.dtype = static_cast<std::int64_t>(t.value);
      if (t.number != 2) continue;
      for (const WireField& dim : wire_fields(t.text)) {
        const WireField d = wire_fields(dim.text).at(0);
        e.shape.push_back(d.number == 1 ? std::to_string(d.value) : std::string(d.text));
      }
    }
  }
  return e;
}

inline OnnxFile onnx_file(std::string_view bytes) {
  OnnxFile out;
  for (const WireField& f : wire_fields(bytes)) {
    if (f.number == 1) out.ir_version = static_cast<std::int64_t>(f.value);
    if (f.number == 2) out.producer = f.text;
    if (f.number == 6) out.doc = f.text;
    if (f.number == 8) out.opset = static_cast<std::int64_t>(wire_fields(f.text).at(0).value);
    if (f.number != 7) continue;
    for (const WireField& g : wire_fields(f.text)) {
      if (g.number == 1) out.nodes.push_back(onnx_node(g.text));
      if (g.number == 11) out.inputs.push_back(onnx_end(g.text));
      if (g.number == 12) out.outputs.push_back(onnx_end(g.text));
      if (g.number != 5) continue;
      OnnxTensor t;
      std::string name;
      for (const WireField& x : wire_fields(g.text)) {
        if (x.number == 1) t.shape.push_back(static_cast<std::int64_t>(x.value));
        if (x.number == 2) t.dtype = static_cast<std::int64_t>(x.value);
        if (x.number == 8) name = x.text;
        if (x.number == 9) t.bytes = x.text;
      }
      out.initializers[name] = t;
    }
  }
  return out;
}

}  // namespace firn::testing
