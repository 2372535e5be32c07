#include "train/fit/interrupts.h"

#include <array>
#include <csignal>
#include <cstddef>
#include <mutex>

namespace firn::train {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};
volatile std::sig_atomic_t signalled = 0;

std::mutex mutex;
int alive = 0;  // objects that handle signals; each rank that is a thread has one
std::array<struct sigaction, kSignals.size()> before;

/// Restores the earlier handler, which a second signal then reaches. Calls only functions that a
/// signal handler may call.
void note_signal(int number) {
  signalled = 1;
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (kSignals[i] == number) ::sigaction(number, &before[i], nullptr);
}

}  // namespace

Interrupts::Interrupts(bool handle) : handle_(handle) {
  if (!handle_) return;
  const std::lock_guard lock(mutex);
  if (alive++ > 0) return;
  signalled = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    // A signal that a shell in the background, or nohup, has set to be ignored stays ignored.
    if (before[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = note_signal;
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupts::~Interrupts() {
  if (!handle_) return;
  const std::lock_guard lock(mutex);
  if (--alive > 0) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    ::sigaction(kSignals[i], nullptr, &now);
    if (now.sa_handler == note_signal) ::sigaction(kSignals[i], &before[i], nullptr);
  }
}

bool Interrupts::came() const noexcept { return handle_ && signalled != 0; }

}  // namespace firn::train
