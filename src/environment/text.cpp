// Writes an Environment as a page for readers, and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "environment/parts.h"
#include "firn/environment.h"
#include "firn/io/record.h"
#include "firn/memory.h"

namespace firn {
namespace {

constexpr std::array<const char*, 3> kFound = {"no", "yes", "not looked for"};
std::string_view text_of(Environment::Found found) {
  return kFound[static_cast<std::size_t>(found)];
}

// ---- JSON: objects of the log's kind, so that one place knows how texts and numbers are written
// ----

using io::Record;

Record record(const Environment::Library& l);
Record record(const Environment::CudaDevice& d);
Record record(const Environment::DataSet& d);
Record record(const Environment::Variable& v);

/// The members of an object, in their order. A Record throws if a text is not UTF-8. This class
/// replaces such bytes by "?", so that a faulty machine still gets its page.
class Object {
 public:
  Object& add(const char* name, const std::string& text) {
    record_.add(name, environment_parts::as_utf8(text));
    return *this;
  }
  Object& add(const char* name, Environment::Found found) {
    record_.add(name, text_of(found));
    return *this;
  }
  template <class T>
  requires std::is_arithmetic_v<T> Object& add(const char* name, T value) {
    record_.add(name, value);
    return *this;
  }
  Object& add(const char* name, const std::vector<std::string>& texts) {
    std::vector<std::string> all;
    for (const std::string& text : texts) all.push_back(environment_parts::as_utf8(text));
    record_.add(name, all);
    return *this;
  }
  template <class T>
  Object& add(const char* name, const std::vector<T>& list) {
    std::vector<Record> all;
    for (const T& item : list) all.push_back(record(item));
    record_.add(name, all);
    return *this;
  }
  Object& add(const char* name, const Record& nested) {
    record_.add(name, nested);
    return *this;
  }
  Object& add(const char* name, const Environment::Library& l) { return add(name, record(l)); }
  const Record& get() const { return record_; }

 private:
  Record record_;
};

Record record(const Environment::Library& l) {
  return Object()
      .add("name", l.name)
      .add("built", l.built)
      .add("found", l.found)
      .add("version", l.version)
      .add("path", l.path)
      .add("why", l.why)
      .get();
}

Record record(const Environment::CudaDevice& d) {
  return Object()
      .add("name", d.name)
      .add("major", d.major)
      .add("minor", d.minor)
      .add("multiprocessors", d.multiprocessors)
      .add("bytes", d.bytes)
      .get();
}

Record record(const Environment::DataSet& d) {
  return Object().add("name", d.name).add("folder", d.folder).add("why", d.why).get();
}

Record record(const Environment::Variable& v) {
  return Object()
      .add("name", v.name)
      .add("value", v.value)
      .add("known", v.known)
      .add("problem", v.problem)
      .add("closest", v.closest)
      .get();
}

Record record(const Environment::Build& b) {
  return Object()
      .add("version", b.version)
      .add("revision", b.revision)
      .add("compiler", b.compiler)
      .add("type", b.type)
      .add("native", b.native)
      .add("shared", b.shared)
      .add("sanitizers", b.sanitizers)
      .get();
}

Record record(const Environment::Cpu& c) {
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
      .get();
}

Record record(const Environment::Memory& m) {
  return Object()
      .add("total", m.total)
      .add("available", m.available)
      .add("limit", m.limit)
      .add("problem", m.problem)
      .get();
}

Record record(const Environment::Cuda& c) {
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
      .get();
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

std::string to_json(const Environment& e) try {
  return Object()
      .add("build", record(e.build))
      .add("system", e.system)
      .add("cpu", record(e.cpu))
      .add("memory", record(e.memory))
      .add("cuda", record(e.cuda))
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
      .get()
      .text();
}
FIRN_OUT_OF_MEMORY("the text of an environment")

std::string to_string(const Environment& e) try {
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
FIRN_OUT_OF_MEMORY("the text of an environment")

}  // namespace firn
