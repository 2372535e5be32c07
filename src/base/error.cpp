#include "firn/error.h"

#include <atomic>
#include <cstdlib>
#include <exception>

#include "base/check.h"

namespace firn {
namespace {

std::string compose(std::string_view op, std::string_view message, std::string_view hint) {
  return hint.empty() ? fmt::format("[{}] {}", op, message)
                      : fmt::format("[{}] {}; hint: {}", op, message, hint);
}

}  // namespace

Error::Error(std::string_view op, std::string_view message, std::string_view hint)
    : std::runtime_error(""),
      op_(op),
      message_(message),
      hint_(hint),
      text_(compose(op, message, hint)) {}

void Error::set_module(std::string_view module) {
  if (!module_.empty()) return;
  std::string text = compose(op_, fmt::format("{}: {}", module, message_), hint_);
  module_ = module;
  text_ = std::move(text);
}

OutOfMemory::OutOfMemory(std::string_view message, std::size_t requested_bytes)
    : Error("allocate", message, "use a smaller batch, or release tensors that are not needed"),
      requested_bytes_(requested_bytes) {}

namespace {
/// Memory for the text of an error when the heap is exhausted.
constexpr std::size_t kSpare = 4096;
std::atomic<void*> spare{std::malloc(kSpare)};
}  // namespace

void detail::out_of_memory(std::string_view op) {
  const auto report = [op] {
    throw OutOfMemory(fmt::format("the heap has no memory left for {}", op), 0);
  };
  try {
    report();
  } catch (const std::bad_alloc&) {
    std::free(spare.exchange(nullptr));
  } catch (const OutOfMemory&) {
    if (!spare.load()) std::free(spare.exchange(std::malloc(kSpare)));
    throw;
  }
  report();
  std::terminate();  // not reached
}

IoError::IoError(std::string_view op, std::string_view path, std::string_view message,
                 std::string_view hint)
    : Error(op, fmt::format("{}: {}", path, message), hint), path_(path) {}

}  // namespace firn
