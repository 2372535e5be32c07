#include "kernels/settings.h"

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "firn/error.h"

namespace firn::kernels {
namespace {

/// The value of the word in the environment variable `name`; `otherwise` if it is unset or empty.
template <class T>
T from_environment(const char* name, T otherwise,
                   std::initializer_list<std::pair<const char*, T>> words) {
  const char* value = std::getenv(name);
  const std::string_view word = value ? value : "";
  if (word.empty()) return otherwise;
  std::string known;
  for (const auto& [known_word, meaning] : words) {
    if (word == known_word) return meaning;
    known += (known.empty() ? "" : ", ") + std::string(known_word);
  }
  throw Error(name, "is '" + std::string(word) + "'", "set it to one of: " + known);
}

}  // namespace

std::atomic<bool>& tf32_switch() noexcept {
  static std::atomic<bool> on{false};
  return on;
}

std::atomic<bool>& nondeterministic_switch() noexcept {
  static std::atomic<bool> on{false};
  return on;
}

std::atomic<Epilogues>& epilogues() {
  static std::atomic<Epilogues> choice{
      from_environment<Epilogues>("FIRN_EPILOGUES", Epilogues::automatic,
                                  {{"fused", Epilogues::fused},
                                   {"unfused", Epilogues::unfused},
                                   {"automatic", Epilogues::automatic}})};
  return choice;
}

std::atomic<ConvPath>& conv_path() {
  static std::atomic<ConvPath> path{from_environment<ConvPath>(
      "FIRN_CONVOLUTIONS", ConvPath::automatic,
      {{"im2col", ConvPath::im2col}, {"automatic", ConvPath::automatic}})};
  return path;
}

std::atomic<std::size_t>& column_bytes() noexcept {
  static std::atomic<std::size_t> bytes{std::size_t{64} << 20};
  return bytes;
}

}  // namespace firn::kernels
