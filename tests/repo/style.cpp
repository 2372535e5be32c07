// Rules of the house that can be read off the files: size, headers, launches, flags, open ends.
#include <algorithm>
#include <regex>
#include <sstream>
#include <string>

#include "repo/files.h"
#include "support/catch.h"

namespace repo {
namespace {

const std::vector<std::string>& all_sources() {
  static const auto files = sources({"include", "src", "kernels", "tests", "samples", "bench"});
  return files;
}

/// Paths for which `broken(path, text)` holds.
template <class Predicate>
std::vector<std::string> where(const std::vector<std::string>& files, Predicate broken) {
  std::vector<std::string> found;
  for (const auto& file : files) {
    if (broken(file, read(file))) found.push_back(file);
  }
  return found;
}

std::string without_comments(const std::string& text) {
  static const std::regex comment(R"(//[^\n]*)");
  return std::regex_replace(text, comment, "");
}

TEST_CASE("no source file is longer than 600 lines") {
  const auto found = where(all_sources(), [](const std::string&, const std::string& text) {
    return std::count(text.begin(), text.end(), '\n') > 600;
  });
  CAPTURE(found);
  CHECK(found.empty());
}

/// Returns true if a comment begins with a word that needs the line above to be understood.
bool begins_without_subject(const std::string& text) {
  static const std::regex begins(
      R"(^(.*?)//[/<]* *(Of|of|What|what|That of|Those of|Whether nothing but)\b(?!\())");
  std::istringstream lines(text);
  bool in_block = false;
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    const bool whole_line = line.find_first_not_of(' ') == line.find("//");
    if (!(in_block && whole_line) && std::regex_search(line, found, begins) &&
        found[1].str().find('"') == std::string::npos)
      return true;
    in_block = whole_line && line.find("//") != std::string::npos;
  }
  return false;
}

TEST_CASE("no comment of the library begins with \"of\" or \"what\"") {
  CHECK(begins_without_subject("int x;  // of the rows\n"));
  CHECK(begins_without_subject("\n/// What it holds.\nint x;\n"));
  CHECK(!begins_without_subject("// The memory\n// of the rows\nint x;\n"));
  CHECK(!begins_without_subject("/// what() names the op.\n"));
  const auto found = where(
      sources({"include", "src", "kernels", "samples", "bench"}),
      [](const std::string&, const std::string& text) { return begins_without_subject(text); });
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("the library has at most 12 variables of threads: ThreadContext has the others") {
  static const std::regex variable(R"((^|\n)(?![^\n]*//)(?![^\n]*extern)[^\n]*\bthread_local\b)");
  std::ptrdiff_t count = 0;
  for (const auto& file : sources({"include", "src", "kernels"})) {
    const std::string text = read(file);
    count += std::distance(std::sregex_iterator(text.begin(), text.end(), variable),
                           std::sregex_iterator());
  }
  CHECK(count > 0);
  CHECK(count <= 12);
}

TEST_CASE("there are ten small samples of at most 80 lines, and each says what it shows") {
  const auto files = sources({"samples/small"});
  CHECK(files.size() >= 10);
  const auto found = where(files, [](const std::string&, const std::string& text) {
    return std::count(text.begin(), text.end(), '\n') > 80 || !text.starts_with("// ");
  });
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("sample models have at most 120 lines, and each says what it shows") {
  const auto files = sources({"samples/models"});
  CHECK(files.size() >= 6);
  const auto found = where(files, [](const std::string&, const std::string& text) {
    return std::count(text.begin(), text.end(), '\n') > 120 || !text.starts_with("// ");
  });
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("the first sample is one file of at most 160 lines, and includes firn alone") {
  const std::string text = read("samples/fashion_mnist.cpp");
  CHECK(std::count(text.begin(), text.end(), '\n') <= 160);
  for (std::size_t at = text.find("#include "); at != std::string::npos;
       at = text.find("#include ", at + 1)) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    CAPTURE(line);
    CHECK((line == "#include \"firn/firn.h\"" || line.find(".h>") == std::string::npos));
    CHECK((line == "#include \"firn/firn.h\"" || line.find('<') != std::string::npos));
  }
}

TEST_CASE("the sample of image models has at most 600 lines: the rest is samples/program") {
  const auto files = sources({"samples/images"});
  std::ptrdiff_t lines = 0;
  for (const auto& file : files) {
    const std::string text = read(file);
    lines += std::count(text.begin(), text.end(), '\n');
  }
  CAPTURE(files);
  CHECK(files.size() > 1);
  CHECK(lines > 100);
  CHECK(lines <= 600);
}

TEST_CASE("every header says what it is, and is guarded by #pragma once") {
  const auto found = where(all_sources(), [](const std::string& path, const std::string& text) {
    return (path.ends_with(".h") || path.ends_with(".cuh")) &&
           (!text.starts_with("// ") || text.find("\n#pragma once\n") == std::string::npos);
  });
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("kernels are launched in one header only, which checks every launch") {
  const auto found =
      where(sources({"kernels", "src"}), [](const std::string& path, const std::string& text) {
        return path != "kernels/cuda/device/gpu.h" &&
               without_comments(text).find("<<<") != std::string::npos;
      });
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE(
    "kernels reach several elements by lanes_at(), so that the simulator sees their alignment") {
  static const std::regex pointer(
      R"re((reinterpret|static)_cast<(const )?(Lanes<[^()]*|Pack<\w+>|Quad<\w+>|Group(<\w+>)?|Word)\s*\*>\([^)]*\)+(\[|\s*[-+;=]))re");
  const auto broken = [](const std::string& path, const std::string& text) {
    return path != "kernels/cuda/device/lanes.cuh" &&
           std::regex_search(without_comments(text), pointer);
  };
  const auto found = where(sources({"kernels/cuda"}), broken);
  CAPTURE(found);
  CHECK(found.empty());
  CHECK(broken("a.cu", "const auto pack = *reinterpret_cast<const Pack<T>*>(data + i);"));
  CHECK(broken("a.cu", "reinterpret_cast<Lanes<T, kWidth>*>(x)[i] = values;"));
}

TEST_CASE("nothing is left open in the sources") {
  static const std::regex open_end(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X)\\b");
  const auto found = where(all_sources(), [](const std::string&, const std::string& text) {
    return std::regex_search(text, open_end);
  });
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("no test has a name that ctest misreads: an open bracket or a semicolon") {
  static const std::regex test_case(R"re(TEST_CASE\(\s*"([^"]*)")re");
  int names = 0;
  for (const auto& file : sources({"tests"})) {
    const std::string text = read(file);
    for (std::sregex_iterator it(text.begin(), text.end(), test_case), end; it != end; ++it) {
      const std::string name = (*it)[1];
      CAPTURE(file, name);
      CHECK(std::count(name.begin(), name.end(), '[') == std::count(name.begin(), name.end(), ']'));
      CHECK(name.find(';') == std::string::npos);
      ++names;
    }
  }
  CHECK(names > 100);
}

TEST_CASE("no build file asks for arithmetic that breaks IEEE rules") {
  static const std::regex unsafe(
      "-(ffast-math|Ofast|ffinite-math-only|funsafe-math|use_fast_math)");
  for (const char* file :
       {"CMakeLists.txt", "CMakePresets.json", "src/CMakeLists.txt", "cmake/FirnKernels.cmake",
        "cmake/FirnCompiler.cmake", "cmake/FirnCuda.cmake"}) {
    std::istringstream lines(read(file));
    for (std::string line; std::getline(lines, line);) {
      const bool comment = line.find_first_not_of(" ") != std::string::npos &&
                           line[line.find_first_not_of(" ")] == '#';
      if (comment) continue;
      CAPTURE(file, line);
      CHECK_FALSE(std::regex_search(line, unsafe));
    }
  }
}

}  // namespace
}  // namespace repo
