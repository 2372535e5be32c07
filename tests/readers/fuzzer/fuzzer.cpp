// libFuzzer's entry: FIRN_READER names the reader (readers.h). `fuzzer --write FOLDER` writes for
// each reader the folder NAME with inputs that are read, and the dictionary NAME.dict.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "firn/error.h"
#include "readers/readers.h"

namespace {

using firn::test::Reader;

const Reader* chosen = nullptr;
std::unique_ptr<firn::test::TempFolder> folder;

void write_seeds(const std::filesystem::path& to) {
  for (const Reader& reader : firn::test::readers()) {
    std::filesystem::create_directories(to / reader.name);
    for (std::size_t i = 0; i < reader.good.size(); ++i)
      firn::test::write_file((to / reader.name / ("good" + std::to_string(i))).string(),
                             reader.good[i]);
    std::ofstream dictionary(to / (reader.name + ".dict"));
    for (const std::string& token : reader.tokens) {
      dictionary << '"';
      for (const unsigned char c : token) {
        char text[8];
        std::snprintf(text, sizeof text, "\\x%02x", c);
        dictionary << text;
      }
      dictionary << "\"\n";
    }
    std::printf("%s\n", reader.name.c_str());
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::string((*argv)[1]) == "--write") {
    write_seeds((*argv)[2]);
    std::exit(0);
  }
  const char* const name = std::getenv("FIRN_READER");
  for (const Reader& reader : firn::test::readers())
    if (name && reader.name == name) chosen = &reader;
  if (chosen == nullptr) {
    std::fprintf(stderr, "FIRN_READER names no reader: %s\n", name ? name : "it is not set");
    std::exit(2);
  }
  folder = std::make_unique<firn::test::TempFolder>();
  std::atexit([] { folder.reset(); });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    chosen->read(*folder, std::string(reinterpret_cast<const char*>(data), size));
  } catch (const firn::Error&) {
  }
  return 0;
}
