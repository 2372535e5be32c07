// Reads files and writes what was read: firn's side of with_numpy.py.
//
//   firn_io_copy FROM TO ...     pairs of paths: ".npy" as arrays, others as safetensors
#include <cstdio>
#include <string>

#include "firn/firn.h"

int main(int argc, char** argv) {
  using namespace firn;
  try {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string from = argv[i], to = argv[i + 1];
      if (from.ends_with(".npy")) {
        io::write_npy(to, io::read_npy(from));
      } else {
        const io::SafetensorsFile file(from, {.map = true});
        io::save_safetensors(to, file.read_all(), file.metadata());
      }
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
