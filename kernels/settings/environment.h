// Settings that an environment variable chooses by a word.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "firn/error.h"

namespace firn::kernels {

/// Returns the value of the word in the environment variable `name`; `otherwise` if it is unset or
/// empty. Throws Error, which lists the words, if it holds another one.
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

}  // namespace firn::kernels
