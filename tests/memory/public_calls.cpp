#include "memory/public_calls.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include "support/source_path.h"

namespace firn::testing {
namespace {

/// Without comments and lines of the preprocessor.
std::string code_of(const std::string& text) {
  std::string out;
  bool block = false, directive = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" \t");
    const bool continues = !line.empty() && line.back() == '\\';
    if (directive || (!block && first != std::string::npos && line[first] == '#')) {
      directive = continues;
      continue;
    }
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (block) {
        if (line.compare(i, 2, "*/") == 0) block = false, ++i;
      } else if (line.compare(i, 2, "/*") == 0) {
        block = true;
      } else if (line.compare(i, 2, "//") == 0) {
        break;
      } else {
        out += line[i];
      }
    }
    out += '\n';
  }
  return out;
}

struct Scope {
  bool is_namespace;
  std::string name;
  bool open;  ///< what follows is public
};

/// Reads declarations one after another.
class Reader {
 public:
  std::set<std::string> read(const std::string& code) {
    for (const char c : code) take(c);
    return std::move(found_);
  }

 private:
  void take(char c) {
    if (body_ > 0) {  // of a function, or an initial value
      body_ += c == '{' ? 1 : c == '}' ? -1 : 0;
      return;
    }
    if (c == '(') ++brackets_;
    if (c == ')') --brackets_;
    if (brackets_ == 0 && c == '{') return open();
    if (brackets_ == 0 && c == '}') {
      if (!scopes_.empty()) scopes_.pop_back();
      declaration_.clear();
      return;
    }
    if (brackets_ == 0 && c == ';') {
      declared();
      declaration_.clear();
      return;
    }
    declaration_ += std::isspace(static_cast<unsigned char>(c)) ? ' ' : c;
    std::smatch m;
    if (c == ':' && std::regex_match(declaration_, m, access_)) {
      scopes_.back().open = m[1] == "public";
      declaration_.clear();
    }
  }

  void open() {
    std::smatch m;
    if (std::regex_search(declaration_, m, namespace_)) {
      scopes_.push_back({true, m[1], true});
    } else if (declaration_.find('(') != std::string::npos) {
      declared();
      body_ = 1;
    } else if (std::regex_search(declaration_, m, class_)) {
      scopes_.push_back({false, m[2], m[1] == "struct"});
    } else {
      body_ = 1;
      return;  // the rest of the declaration follows the braces
    }
    declaration_.clear();
  }

  void declared() {
    std::string path;
    bool member = false;
    for (const Scope& s : scopes_) {
      if (!s.open || s.name == "detail" || s.name.ends_with("::detail")) return;
      member = member || !s.is_namespace;
      if (!s.is_namespace)
        path += s.name + "::";
      else if (s.name != "firn")
        path += (s.name.starts_with("firn::") ? s.name.substr(6) : s.name) + "::";
    }
    if (member)  // a member's name is its classes' and its own
      for (const Scope& s : scopes_)
        if (s.is_namespace && s.name != "firn")
          path.erase(0, (s.name.starts_with("firn::") ? s.name.size() - 6 : s.name.size()) + 2);
    static const std::regex skipped(
        R"(^ *(using|friend|typedef|static_assert|FIRN_)|= *(delete|default) *$)");
    if (std::regex_search(declaration_, skipped)) return;
    std::smatch m;
    static const std::regex name(R"((operator *[^ \w(]+|~?\b\w+) *\()");
    if (!std::regex_search(declaration_, m, name)) return;
    const std::string called = m[1], before = m.prefix();
    const auto end = closing(declaration_, static_cast<std::size_t>(m.position(0) + m.length(0)));
    const std::string arguments =
        declaration_.substr(static_cast<std::size_t>(m.position(0) + m.length(0)),
                            end - static_cast<std::size_t>(m.position(0) + m.length(0)));
    const std::string after = end < declaration_.size() ? declaration_.substr(end + 1) : "";
    if (changes(called, before, arguments, after, member)) found_.insert(path + called);
  }

  bool changes(const std::string& name, const std::string& before, const std::string& arguments,
               const std::string& after, bool member) const {
    static const std::regex operators(R"(operator *(\+=|-=|\*=|/=|\+\+))");
    static const std::regex data(R"(\b(std::function|constexpr|requires|static|concept)\b|^ *$)");
    if (name.starts_with("operator") && !std::regex_match(name, operators)) return false;
    if (name == "forward" || std::regex_search(before, data)) return false;
    if (!scopes_.empty() && (name == scopes_.back().name || name == "~" + scopes_.back().name))
      return false;
    if (before.find('=') != std::string::npos) return false;  // a field with an initial value
    for (const char* begin : {"set_", "add_", "remove_"})
      if (name.starts_with(begin)) return true;
    static const std::regex nothing(R"(\bvoid *$)"), constant(R"(\bconst [\w:<>, ]+[&*])");
    if (name.ends_with('_') || std::regex_search(before, nothing)) return true;
    static const std::regex is_const(R"(^ *const\b)");
    if (member) return !std::regex_search(after, is_const);
    static const std::regex reference(R"([\w>] ?[&*]+ ?[\w>])");
    return std::regex_search(std::regex_replace(arguments, constant, ""), reference);
  }

  static std::size_t closing(const std::string& text, std::size_t at) {
    for (int depth = 1; at < text.size(); ++at) {
      depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    return at;
  }

  const std::regex access_{R"( *(public|private|protected) *:)"};
  const std::regex namespace_{R"(\bnamespace +([\w:]+) *$)"};
  const std::regex class_{R"(\b(class|struct) +([\w:]+)( final)? *(:[^:].*)?$)"};
  std::vector<Scope> scopes_;
  std::string declaration_;
  int brackets_ = 0, body_ = 0;
  std::set<std::string> found_;
};

}  // namespace

std::set<std::string> changing_calls_in(const std::string& text) {
  return Reader().read(code_of(text));
}

std::set<std::string> changing_calls() {
  std::set<std::string> all;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(source_path("include/firn"))) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream in(entry.path());
    std::ostringstream text;
    text << in.rdbuf();
    all.merge(changing_calls_in(text.str()));
  }
  return all;
}

}  // namespace firn::testing
