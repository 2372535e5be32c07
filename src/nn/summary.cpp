// Printing a Module: its structure, and a table of shapes, parameters and bytes.
#include <algorithm>
#include <array>
#include <optional>
#include <ostream>
#include <unordered_map>

#include "autograd/node.h"
#include "base/check.h"
#include "firn/nn/module.h"
#include "firn/ops/ops.h"
#include "nn/tree.h"

namespace firn::nn {

using detail::tree_of;
using detail::TreeModule;
using detail::TreeTensor;

namespace {

constexpr std::size_t kWidth = 100;  ///< wider tables list each parameter on its own line

struct Amount {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  void add(const Tensor& t) {
    count += t.numel();
    bytes += static_cast<std::int64_t>(t.bytes());
  }
};

/// "669,706"
std::string with_commas(std::int64_t n) {
  std::string s = std::to_string(n);
  for (std::size_t i = s.size(); i > 3; i -= 3) s.insert(i - 3, 1, ',');
  return s;
}

/// "2.55 MiB"
std::string readable_bytes(std::int64_t bytes) {
  static constexpr std::array units = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t u = 0;
  for (; value >= 1023.995 && u + 1 < units.size(); ++u) value /= 1024;
  return fmt::format("{:.2f} {}", value, units[u]);
}

/// Columns on a terminal: each of the table's non-ASCII characters takes one.
std::size_t columns(const std::string& s) {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

/// "[2, 3]", or several with commas between them.
std::string shapes_of(const CallTensors& tensors) {
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) text += ", ";
    text += tensors[i].defined() ? to_string(tensors[i].shape()) : "undefined";
  }
  return text;
}

// ---- The trial run ----

/// Runs the modules of a tree and notes their output shapes.
class TrialRun final : public detail::CallListener {
 public:
  TrialRun(const std::vector<TreeModule>& tree, const std::function<void()>& run) {
    for (const TreeModule& m : tree) calls_[m.module];
    const detail::EvalScope eval(tree);
    const NoGrad guard;
    run();
  }

  void called(const Module& m, const CallTensors& outputs) override {
    const auto found = calls_.find(&m);
    if (found == calls_.end()) {
      const std::int64_t n = m.num_parameters();
      if (n == 0) return;  // a temporary such as nn::ReLU()(x)
      const std::string text =
          fmt::format("{}({}), {} parameters", m.type_name(), m.extra_repr(), with_commas(n));
      if (std::find(strangers.begin(), strangers.end(), text) == strangers.end())
        strangers.push_back(text);
      return;
    }
    Call& call = found->second;
    ++call.times;
    call.shape = shapes_of(outputs);
  }

  std::string output_of(const Module* m) const {
    const Call& call = calls_.at(m);
    if (call.times == 0) return "";
    return call.times == 1 ? call.shape : fmt::format("{} ×{}", call.shape, call.times);
  }

  /// Modules with parameters that ran but are not in the model's tree.
  std::vector<std::string> strangers;

 private:
  struct Call {
    std::string shape;
    int times = 0;
  };

  std::unordered_map<const Module*, Call> calls_;
};

// ---- The table ----

enum Column { kPath, kType, kOutput, kShapes, kCount, kBytes, kColumns };
using Row = std::array<std::string, kColumns>;

std::string shape_text(const TreeTensor& t) {
  if (!t.tied_to.empty()) return fmt::format("{} = {}", t.name, t.tied_to);
  const char* note = t.buffer ? " (buffer)" : t.tensor.requires_grad() ? "" : " (frozen)";
  return fmt::format("{} {}{}", t.name, t.tensor.shape(), note);
}

class Table {
 public:
  explicit Table(bool with_output) : with_output_(with_output) {
    rows_.push_back({"module", "type", "output", "parameters", "count", "bytes"});
  }

  void add_module(const TreeModule& m, const std::string& output) {
    Amount own;
    std::vector<std::string> shapes;
    for (const TreeTensor& t : m.tensors) {
      if (t.tied_to.empty()) own.add(t.tensor);
      shapes.push_back(shape_text(t));
    }
    Row row = {m.path.empty() ? "(self)" : m.path, m.module->type_name(), output, "", "", ""};
    if (own.count > 0) {
      row[kCount] = with_commas(own.count);
      row[kBytes] = readable_bytes(own.bytes);
    }
    rows_.push_back(std::move(row));
    shapes_.emplace_back(rows_.size() - 1, std::move(shapes));
  }

  void add_total(const char* name, const Amount& amount) {
    totals_.push_back({name, with_commas(amount.count), readable_bytes(amount.bytes)});
  }

  std::string text() {
    join_shapes();
    std::array<std::size_t, kColumns> widths = measure();
    if (line_width(widths) > kWidth) {
      stack_shapes();
      widths = measure();
    }
    const std::size_t width = line_width(widths);
    std::string rule;
    for (std::size_t i = 0; i < width; ++i) rule += "─";
    rule += '\n';

    std::string out;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      out += line(rows_[i], widths);
      if (i == 0) out += rule;
    }
    out += rule;
    for (const auto& [name, count, bytes] : totals_) {
      const std::size_t numbers = widths[kCount] + kGap + widths[kBytes];
      out += name + std::string(width - numbers - name.size(), ' ');
      out += std::string(widths[kCount] - count.size(), ' ') + count + std::string(kGap, ' ');
      out += std::string(widths[kBytes] - bytes.size(), ' ') + bytes + '\n';
    }
    return out;
  }

 private:
  static constexpr std::size_t kGap = 2;
  static bool right_aligned(int column) { return column >= kCount; }

  /// Puts all parameters of a module on one line.
  void join_shapes() {
    for (const auto& [row, shapes] : shapes_)
      for (const std::string& s : shapes) {
        std::string& cell = rows_[row][kShapes];
        cell += (cell.empty() ? "" : ", ") + s;
      }
  }
  /// Gives each parameter a line, if the table would be too wide.
  void stack_shapes() {
    std::vector<Row> stacked = {rows_.front()};
    for (const auto& [row, shapes] : shapes_) {
      stacked.push_back(rows_[row]);
      stacked.back()[kShapes] = shapes.empty() ? "" : shapes.front();
      for (std::size_t i = 1; i < shapes.size(); ++i) {
        stacked.emplace_back();
        stacked.back()[kShapes] = shapes[i];
      }
    }
    rows_ = std::move(stacked);
  }

  std::array<std::size_t, kColumns> measure() const {
    std::array<std::size_t, kColumns> widths{};
    for (const Row& row : rows_)
      for (int c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], columns(row[c]));
    for (const auto& [name, count, bytes] : totals_) {
      widths[kCount] = std::max(widths[kCount], count.size());
      widths[kBytes] = std::max(widths[kBytes], bytes.size());
    }
    if (!with_output_) widths[kOutput] = 0;
    return widths;
  }

  std::size_t line_width(const std::array<std::size_t, kColumns>& widths) const {
    std::size_t width = 0;
    for (int c = 0; c < kColumns; ++c)
      if (c != kOutput || with_output_) width += widths[c] + kGap;
    return width - kGap;
  }

  std::string line(const Row& row, const std::array<std::size_t, kColumns>& widths) const {
    std::string out;
    for (int c = 0; c < kColumns; ++c) {
      if (c == kOutput && !with_output_) continue;
      if (c > 0) out += std::string(kGap, ' ');
      const std::string space(widths[c] - columns(row[c]), ' ');
      out += right_aligned(c) ? space + row[c] : row[c] + space;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + '\n';
  }

  bool with_output_;
  std::vector<Row> rows_;
  std::vector<std::pair<std::size_t, std::vector<std::string>>> shapes_;  ///< by row
  std::vector<std::array<std::string, 3>> totals_;
};

/// Makes the table, with output shapes if there is a call that produces them.
std::string summarize(Module& root, const CallTensors& inputs,
                      const std::function<void()>& run) try {
  detail::require_members("Module::summary", root);
  const std::vector<TreeModule> tree = tree_of(root);
  std::optional<TrialRun> trial;
  if (run) trial.emplace(tree, run);

  Table table(trial.has_value());
  Amount trainable, frozen, buffers, all;
  std::vector<std::string> places;  // "f32 cpu": one, unless parameters differ
  for (const TreeModule& m : tree) {
    // The root has a line if it has tensors of its own or no sub-modules.
    if (!m.path.empty() || !m.tensors.empty() || tree.size() == 1)
      table.add_module(m, trial ? trial->output_of(m.module) : "");
    for (const TreeTensor& t : m.tensors) {
      if (!t.tied_to.empty()) continue;
      all.add(t.tensor);
      const std::string place = fmt::format("{} {}", t.tensor.dtype(), t.tensor.device());
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
      (t.buffer ? buffers : t.tensor.requires_grad() ? trainable : frozen).add(t.tensor);
    }
  }
  if (frozen.count > 0 || buffers.count > 0) {
    table.add_total("trainable", trainable);
    if (frozen.count > 0) table.add_total("frozen", frozen);
    if (buffers.count > 0) table.add_total("buffers", buffers);
  }
  table.add_total("total", all);

  std::string out = root.type_name();
  for (const std::string& place : places) out += ", " + place;
  if (trial) out += fmt::format(": {} -> {}", shapes_of(inputs), trial->output_of(&root));
  out += "\n\n" + table.text();
  if (const std::string shared = detail::shared_elements(tree); !shared.empty())
    out += shared + "\n";
  if (trial)
    for (const std::string& s : trial->strangers)
      out += fmt::format("not a member: {}; is it missing in FIRN_MEMBERS?\n", s);
  return out;
}
FIRN_OUT_OF_MEMORY("Module::summary")

/// Prints lines for the module at `at` and its sub-modules, indented by `depth`.
void print(std::ostream& out, const std::vector<TreeModule>& tree, std::size_t& at) {
  const TreeModule& m = tree[at++];
  const std::string indent(static_cast<std::size_t>(2 * m.depth), ' ');
  const std::string extra = detail::repr_of(*m.module);
  out << indent << (m.depth > 0 ? fmt::format("{}: ", m.name) : "") << m.module->type_name() << '('
      << extra;
  const bool leaf = at == tree.size() || tree[at].depth <= m.depth;
  if (!leaf) {
    out << '\n';
    while (at < tree.size() && tree[at].depth > m.depth) {
      print(out, tree, at);
      out << '\n';
    }
    out << indent;
  }
  out << ')';
}

}  // namespace

std::string Module::summary() const { return summarize(const_cast<Module&>(*this), {}, {}); }

std::string Module::summary(const Tensor& input) const try {
  auto& self = const_cast<Module&>(*this);
  Tensor x = input;
  return self.summarize_call(detail::tensors_in(x), [&] { self(x); });
}
FIRN_OUT_OF_MEMORY("Module::summary")

std::string Module::summarize_call(const CallTensors& inputs, const std::function<void()>& call) {
  return summarize(*this, inputs, call);
}

Tensor Module::zeros_as_input(const Shape& shape) const {
  detail::require_members("Module::summary", *this);
  const std::vector<Tensor> all = parameters();
  return all.empty() ? zeros(shape) : zeros(shape, all[0].dtype(), all[0].device());
}

std::string Module::summary(const Shape& input) const { return summary(zeros_as_input(input)); }

std::ostream& operator<<(std::ostream& out, const Module& m) try {
  const std::vector<TreeModule> tree = tree_of(m);
  std::size_t at = 0;
  print(out, tree, at);
  return out;
}
FIRN_OUT_OF_MEMORY("the text of a module")

}  // namespace firn::nn
