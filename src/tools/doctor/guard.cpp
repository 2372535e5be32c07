#include "tools/doctor/guard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

namespace doctor {
namespace {

/// Calls only functions that a signal handler may call.
void write_line(std::string_view text) noexcept {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

extern "C" void on_illegal_instruction(int) {
  write_line(
      "firn-doctor: this CPU lacks an instruction that the build uses: the build is for the CPU of "
      "another machine.\nfirn-doctor: build firn on this machine, or with -DFIRN_NATIVE=OFF for "
      "every CPU.\n");
  ::_exit(1);
}

}  // namespace

void explain_illegal_instructions() noexcept { std::signal(SIGILL, on_illegal_instruction); }

Deadline::Deadline(std::string step, std::chrono::seconds most)
    : step_(std::move(step)), most_(most), thread_(&Deadline::watch, this) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Deadline::watch() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, most_, [this] { return done_; })) return;
  write_line(fmt::format("firn-doctor: no end of {} after {} seconds\n", step_, most_.count()));
  ::_exit(1);
}

}  // namespace doctor
