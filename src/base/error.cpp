#include "firn/error.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/check.h"

namespace firn {
namespace {

std::string compose(std::string_view op, std::string_view message, std::string_view hint) {
  return hint.empty() ? fmt::format("[{}] {}", op, message)
                      : fmt::format("[{}] {}; hint: {}", op, message, hint);
}

}  // namespace

Error::Error(std::shared_ptr<const Text> text) : std::runtime_error(""), text_(std::move(text)) {}

Error::Error(std::string_view op, std::string_view message, std::string_view hint)
    : Error(make_text(op, message, hint)) {}

std::shared_ptr<const Error::Text> Error::make_text(std::string_view op, std::string_view message,
                                                    std::string_view hint) {
  return std::make_shared<const Text>(Text{.op = std::string(op),
                                           .message = std::string(message),
                                           .hint = std::string(hint),
                                           .module = {},
                                           .what = compose(op, message, hint)});
}

void Error::set_module(std::string_view module) {
  if (module.empty() || !text_->module.empty()) return;
  Text text = *text_;
  text.what = compose(text.op, fmt::format("{}: {}", module, text.message), text.hint);
  text.module = module;
  text_ = std::make_shared<const Text>(std::move(text));
}

namespace {

constexpr const char* kSmaller = "use a smaller batch, or release tensors that are not needed";

/// Memory for the text of an error if the heap has none.
constexpr std::size_t kSpare = 8192;
std::atomic<void*> spare{std::malloc(kSpare)};

/// Makes an OutOfMemory, which prepares the text for a heap that stays empty.
[[maybe_unused]] const bool prepared = (OutOfMemory("", 0), true);

}  // namespace

std::shared_ptr<const Error::Text> OutOfMemory::text_of(std::string_view message,
                                                        std::string_view hint) {
  static const auto& without_memory = *new std::shared_ptr<const Text>(
      make_text("allocate", "no memory left, not even for the text of this error", kSmaller));
  const auto make = [&] { return make_text("allocate", message, hint); };
  try {
    std::shared_ptr<const Text> text = make();
    if (!spare.load()) std::free(spare.exchange(std::malloc(kSpare)));
    return text;
  } catch (const std::bad_alloc&) {
    std::free(spare.exchange(nullptr));
  }
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return without_memory;
  }
}

OutOfMemory::OutOfMemory(std::string_view message, std::size_t requested_bytes)
    : OutOfMemory(message, requested_bytes, kSmaller) {}
OutOfMemory::OutOfMemory(std::string_view message, std::size_t requested_bytes,
                         std::string_view hint)
    : Error(text_of(message, hint)), requested_bytes_(requested_bytes) {}

void detail::out_of_memory(std::string_view op) {
  char text[256];
  const auto end = fmt::format_to_n(text, sizeof text, "the heap has no memory left for {}", op);
  throw OutOfMemory({text, std::min(end.size, sizeof text)}, 0);
}

IoError::IoError(std::string_view op, std::string_view path, std::string_view message,
                 std::string_view hint)
    : Error(op, path.empty() ? std::string(message) : fmt::format("{}: {}", path, message), hint),
      path_(path) {}

}  // namespace firn
