// The errors that firn throws: each names the operation, the values it met and, where one exists,
// a remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace firn {

/// Base of all exceptions thrown by firn.
/// what() reads `[matmul] inner sizes differ: a [64, 128] f16, b [64, 10] f16; hint: transpose b`.
class Error : public std::runtime_error {
 public:
  /// @param op      the operation that threw, e.g. "matmul"
  /// @param message the expected and the found values
  /// @param hint    a remedy for the caller; may be empty
  Error(std::string_view op, std::string_view message, std::string_view hint = {});
  Error(const Error&) = default;  // a move copies, which needs no memory
  Error& operator=(const Error&) = default;

  /// The operation that threw, such as "matmul".
  const std::string& op() const noexcept { return text_->op; }
  /// what() without op, module and hint.
  const std::string& message() const noexcept { return text_->message; }
  const std::string& hint() const noexcept { return text_->hint; }
  const char* what() const noexcept override { return text_->what.c_str(); }

  /// Place in the model: path and type of the innermost module that was being called, such as
  /// "encoder.3 (Linear)". "backward of cube" in the backward function of a custom(). Empty
  /// outside of both, and in the outermost module itself.
  const std::string& module() const noexcept { return text_->module; }
  /// Adds module() to what(), before the message. Only the first call has an effect.
  void set_module(std::string_view module);

 protected:
  /// The parts of an error's text; copies of the error share them.
  struct Text {
    std::string op, message, hint, module, what;  ///< results of the functions of these names
  };
  explicit Error(std::shared_ptr<const Text> text);
  /// Returns the parts, with what() made from them.
  static std::shared_ptr<const Text> make_text(std::string_view op, std::string_view message,
                                               std::string_view hint);

 private:
  std::shared_ptr<const Text> text_;  ///< never null
};

/// An allocation failed, and failed again after cached blocks were returned to the system.
class OutOfMemory : public Error {
 public:
  /// If the heap has no memory for the message either, what() says only that memory ran out.
  OutOfMemory(std::string_view message, std::size_t requested_bytes);
  /// Gives a hint other than that of a smaller batch.
  OutOfMemory(std::string_view message, std::size_t requested_bytes, std::string_view hint);
  /// Bytes that were requested.
  std::size_t requested_bytes() const noexcept { return requested_bytes_; }

 private:
  static std::shared_ptr<const Text> text_of(std::string_view message, std::string_view hint);

  std::size_t requested_bytes_;
};

namespace detail {
/// Throws OutOfMemory: the heap has no memory left for data of `op` other than tensors. Needs no
/// memory itself.
[[noreturn]] void out_of_memory(std::string_view op);
}  // namespace detail

/// A file is missing, unreadable, truncated, or not what it claims to be.
class IoError : public Error {
 public:
  IoError(std::string_view op, std::string_view path, std::string_view message,
          std::string_view hint = {});
  /// The file or folder, as the caller named it.
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// This build or this machine does not have the requested device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace firn
