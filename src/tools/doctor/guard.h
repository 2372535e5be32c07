// Keeps firn-doctor from ending without a message: on a CPU that lacks the build's instructions,
// and when a driver or a file system does not answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace doctor {

/// Makes SIGILL write a line to stderr that says what to build, and end the process with status 1.
void explain_illegal_instructions() noexcept;

/// While it exists, the process ends with status 1 and a line on stderr if `step` takes longer than
/// `most`.
class Deadline {
 public:
  Deadline(std::string step, std::chrono::seconds most);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void watch();

  std::string step_;
  std::chrono::seconds most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace doctor
