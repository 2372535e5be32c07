// The sample's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sample {

struct Options {
  std::string model = "mlp";
  int epochs = 5;
  std::int64_t batch = 64;
  double lr = 0;  ///< filled in by the optimizer's default where not given
  std::string optimizer = "adam";
  std::uint64_t seed = 1;
  int threads = 0;  ///< filled in by firn's default where not given
  std::string device = "cpu";
  std::string data;  ///< folder; empty: see load_fashion_mnist
  std::string log;   ///< JSON lines; empty: none
  std::string save;  ///< safetensors file; empty: none
};

/// The options, or nothing where the program should end with `exit_code` (after --help or a
/// mistake, about which the user has been told).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace sample
