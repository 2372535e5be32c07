// The settings' first values, from the environment, so that ctest can run one program in many ways.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cusim.h"

namespace cusim {
namespace {

std::int64_t number(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*end) {
    throw std::invalid_argument(std::string(name) + "=" + text + " is not a whole number");
  }
  return value;
}

}  // namespace

void read_environment(Config& config) {
  if (const char* text = std::getenv("CUSIM_ORDER"); text && *text) {
    const std::string order = text;
    if (order == "sequential") {
      config.threads = Order::sequential;
    } else if (order == "reversed") {
      config.threads = Order::reversed;
    } else if (order == "random") {
      config.threads = Order::random;
    } else {
      throw std::invalid_argument("CUSIM_ORDER=" + order +
                                  " must be sequential, reversed or random");
    }
    config.blocks = config.threads;
  }
  config.seed =
      static_cast<std::uint64_t>(number("CUSIM_SEED", static_cast<std::int64_t>(config.seed)));
  config.lazy_streams = number("CUSIM_LAZY", config.lazy_streams) != 0;
  config.protect = number("CUSIM_PROTECT", config.protect) != 0;
  config.initcheck = number("CUSIM_INITCHECK", config.initcheck) != 0;
  config.hardware_tanh = number("CUSIM_HARDWARE_TANH", config.hardware_tanh) != 0;
  config.devices = static_cast<int>(number("CUSIM_DEVICES", config.devices));
  config.device_bytes = static_cast<std::size_t>(
      number("CUSIM_MEMORY", static_cast<std::int64_t>(config.device_bytes)));
  config.fail_alloc = number("CUSIM_FAIL_ALLOC", config.fail_alloc);
  config.fail_api = number("CUSIM_FAIL_API", config.fail_api);
}

Config& config() {
  static Config settings = [] {
    Config c;
    read_environment(c);
    return c;
  }();
  return settings;
}

}  // namespace cusim
