// An Environment as a page for people, and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "firn/environment.h"
#include "firn/memory.h"
#include "io/json.h"

namespace firn {
namespace {

constexpr std::array<const char*, 3> kFound = {"no", "yes", "not looked for"};
std::string_view text_of(Environment::Found found) {
  return kFound[static_cast<std::size_t>(found)];
}

// ---- JSON ----

std::string json(const std::string& text) { return io::json_string(text); }
std::string json(bool value) { return value ? "true" : "false"; }
std::string json(Environment::Found found) { return json(std::string(text_of(found))); }
template <class T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) std::string json(T number) {
  return fmt::format("{}", number);
}
std::string json(const Environment::Library& l);
std::string json(const Environment::CudaDevice& d);
std::string json(const Environment::DataSet& d);
std::string json(const Environment::Variable& v);

template <class T>
std::string json(const std::vector<T>& list) {
  std::string out;
  for (const T& item : list) out += (out.empty() ? "" : ", ") + json(item);
  return "[" + out + "]";
}

/// The members of an object, in their order.
class Object {
 public:
  template <class T>
  Object& add(const char* name, const T& value) {
    return add_json(name, json(value));
  }
  Object& add_json(const char* name, const std::string& value) {
    out_ += (out_.empty() ? "" : ", ") + io::json_string(name) + ": " + value;
    return *this;
  }
  std::string text() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

std::string json(const Environment::Library& l) {
  return Object()
      .add("name", l.name)
      .add("built", l.built)
      .add("found", l.found)
      .add("version", l.version)
      .add("path", l.path)
      .add("why", l.why)
      .text();
}

std::string json(const Environment::CudaDevice& d) {
  return Object()
      .add("name", d.name)
      .add("major", d.major)
      .add("minor", d.minor)
      .add("multiprocessors", d.multiprocessors)
      .add("bytes", d.bytes)
      .text();
}

std::string json(const Environment::DataSet& d) {
  return Object().add("name", d.name).add("folder", d.folder).add("why", d.why).text();
}

std::string json(const Environment::Variable& v) {
  return Object()
      .add("name", v.name)
      .add("value", v.value)
      .add("known", v.known)
      .add("problem", v.problem)
      .add("closest", v.closest)
      .text();
}

std::string json(const Environment::Build& b) {
  return Object()
      .add("version", b.version)
      .add("revision", b.revision)
      .add("compiler", b.compiler)
      .add("type", b.type)
      .add("native", b.native)
      .add("shared", b.shared)
      .add("sanitizers", b.sanitizers)
      .text();
}

std::string json(const Environment::Cpu& c) {
  return Object()
      .add("model", c.model)
      .add("cores", c.cores)
      .add("usable", c.usable)
      .add("quota", c.quota)
      .add("threads", c.threads)
      .add("threads_set", c.threads_set)
      .add("features", c.features)
      .add("machine_level", c.machine_level)
      .add("kernels", c.kernels)
      .add("level", c.level)
      .add("level_forced", c.level_forced)
      .add("kernels_run", c.kernels_run)
      .add("variants", c.variants)
      .add("f32", c.f32)
      .add("bf16", c.bf16)
      .add("f16", c.f16)
      .add("bf16_unit", c.bf16_unit)
      .add("f16_unit", c.f16_unit)
      .add("problem", c.problem)
      .text();
}

std::string json(const Environment::Memory& m) {
  return Object()
      .add("total", m.total)
      .add("available", m.available)
      .add("limit", m.limit)
      .add("problem", m.problem)
      .text();
}

std::string json(const Environment::Cuda& c) {
  return Object()
      .add("built", c.built)
      .add("simulated", c.simulated)
      .add("toolkit", c.toolkit)
      .add("architectures", c.architectures)
      .add("found", c.found)
      .add("driver", c.driver)
      .add("driver_cuda", c.driver_cuda)
      .add("devices", c.devices)
      .add("why", c.why)
      .add("hint", c.hint)
      .add("cublaslt", c.cublaslt)
      .add("cudnn", c.cudnn)
      .text();
}

// ---- The page ----

std::string line(const Environment::Library& l) {
  if (!l.built) return fmt::format("{}: not built in\n", l.name);
  std::string out = l.name + ": ";
  if (l.found == Environment::Found::no) return out + "not found, tried:" + l.why + "\n";
  out += l.version.empty() ? std::string("built in") : l.version;
  if (l.found == Environment::Found::not_looked_for) out += ", not looked for";
  return out + (l.path.empty() ? "" : " (" + l.path + ")") + "\n";
}

std::string cuda_lines(const Environment::Cuda& c) {
  if (!c.built) return "CUDA: not built in\n";
  std::string out = fmt::format(
      "CUDA: toolkit {}, for {}, driver {}\n", c.toolkit,
      c.simulated ? "the simulator" : fmt::format("{}", fmt::join(c.architectures, ", ")),
      c.driver.empty() ? "none" : c.driver);
  if (c.found == Environment::Found::no) out += "CUDA devices: none: " + c.why + "\n";
  for (std::size_t i = 0; i < c.devices.size(); ++i) {
    const Environment::CudaDevice& d = c.devices[i];
    out +=
        fmt::format("cuda:{}: {}, sm_{}{}, {}{}\n", i, d.name, d.major, d.minor,
                    bytes_to_string(d.bytes), c.covers(d) ? "" : ", no code for it in this build");
  }
  return out + line(c.cublaslt) + line(c.cudnn);
}

}  // namespace

std::string to_json(const Environment& e) {
  return Object()
      .add_json("build", json(e.build))
      .add("system", e.system)
      .add_json("cpu", json(e.cpu))
      .add_json("memory", json(e.memory))
      .add_json("cuda", json(e.cuda))
      .add("onednn", e.onednn)
      .add("eigen", e.eigen)
      .add("zlib", e.zlib)
      .add("libdeflate", e.libdeflate)
      .add("png", e.png)
      .add("jpeg", e.jpeg)
      .add("mpi", e.mpi)
      .add("nccl", e.nccl)
      .add("mpirun", e.mpirun)
      .add("data", e.data)
      .add("variables", e.variables)
      .text();
}

std::string to_string(const Environment& e) {
  const Environment::Build& b = e.build;
  const Environment::Cpu& c = e.cpu;
  std::string out = fmt::format("firn {} ({}), {}, {}{}{}\n", b.version, b.revision, b.type,
                                b.compiler, b.native ? ", native" : "",
                                b.sanitizers.empty() ? "" : ", sanitizers " + b.sanitizers);
  out += fmt::format("system: {}\n", e.system);
  out += fmt::format("CPU: {}, {} of {} CPUs, {} threads, features {}\n", c.model, c.usable,
                     c.cores, c.threads, fmt::join(c.features, " "));
  if (c.problem.empty())
    out += fmt::format("kernels: for {}, level {}, products: f32 by {}, bf16 by {}, f16 by {}\n",
                       c.kernels, c.level, c.f32, c.bf16, c.f16);
  else
    out += fmt::format("kernels: {}\n", c.problem);
  out += fmt::format("memory: {}, {} available, limit {}\n", bytes_to_string(e.memory.total),
                     bytes_to_string(e.memory.available),
                     !e.memory.problem.empty() ? e.memory.problem
                     : e.memory.limit == 0     ? std::string("none")
                                               : bytes_to_string(e.memory.limit));
  out += cuda_lines(e.cuda);
  for (const auto* l :
       {&e.onednn, &e.eigen, &e.zlib, &e.libdeflate, &e.png, &e.jpeg, &e.mpi, &e.nccl})
    out += line(*l);
  for (const auto& d : e.data)
    out += fmt::format("{}: {}\n", d.name, d.folder.empty() ? d.why : d.folder);
  for (const auto& v : e.variables)
    out += fmt::format("{}={}{}\n", v.name, v.value,
                       !v.known            ? ", which nothing reads"
                       : v.problem.empty() ? ""
                                           : ": " + v.problem);
  return out;
}

}  // namespace firn
