// Draws the bar by a carriage return, the text and an erase to the end of the line, and no other
// bytes.
#include "firn/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace firn::train {
namespace {

using namespace std::chrono_literals;

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string clock_text(double seconds) {
  const auto s = static_cast<std::int64_t>(std::min(std::ceil(std::max(seconds, 0.0)), 359'999.0));
  char text[32];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%d:%02d:%02d", static_cast<int>(s / 3600),
                  static_cast<int>(s / 60 % 60), static_cast<int>(s % 60));
  } else {
    std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(s / 60), static_cast<int>(s % 60));
  }
  return text;
}

double share_of(std::int64_t done, std::int64_t total) {
  if (total <= 0) return 1.0;
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%3d%%", static_cast<int>(share * 100));
  return text;
}

/// Returns "  51200 samples/s  ETA 0:03", or an empty text before the first sample.
std::string rate_text(std::int64_t done, std::int64_t total, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  if (rate <= 0 || !std::isfinite(rate)) return {};
  char text[64];
  std::snprintf(text, sizeof text, "  %.0f samples/s", rate);
  return text +
         ("  ETA " + clock_text((static_cast<double>(total) - static_cast<double>(done)) / rate));
}

}  // namespace

bool may_draw(int file_descriptor) noexcept {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(file_descriptor) != 0 && (no_color == nullptr || *no_color == '\0') &&
         term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

std::string grouped(std::int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<std::int64_t>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
    s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total,
                          double seconds) {
  return label + " " + percent_text(share_of(done, total)) + rate_text(done, total, seconds);
}

std::string progress_bar(const std::string& label, std::int64_t done, std::int64_t total,
                         double seconds, int columns) {
  constexpr std::size_t kLongest = 40;
  constexpr std::size_t kShortest = 5;
  const auto room = static_cast<std::size_t>(std::max(columns, 0));
  const double share = share_of(done, total);
  const std::string percent = percent_text(share);
  const std::string rate = rate_text(done, total, seconds);
  const std::size_t fixed = label.size() + std::size_t{4} + percent.size() + rate.size();
  if (room >= fixed + kShortest) {
    const std::size_t width = std::min(kLongest, room - fixed);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
    std::string bar(std::min(filled, width), '=');
    if (bar.size() < width) bar += '>';
    bar.resize(width, ' ');
    return label + " [" + bar + "] " + percent + rate;
  }
  for (const std::string& shorter :
       {label + " " + percent + rate, label + " " + percent, percent}) {
    if (shorter.size() <= room) return shorter;
  }
  return {};
}

using Clock = std::chrono::steady_clock;

struct Progress::State {
  void draw(std::int64_t done, Clock::time_point now);

  std::string label;
  std::int64_t total, before;
  bool terminal = may_draw(STDERR_FILENO);
  bool drawn = false;
  Clock::time_point start = Clock::now();
  Clock::time_point next = start + (terminal ? Clock::duration(100ms) : Clock::duration(10s));
};

Progress::Progress(std::string label, std::int64_t total, std::int64_t done)
    : state_(new State{std::move(label), total, done}) {}

Progress::~Progress() {
  if (state_->drawn) std::fputc('\n', stderr);
}

void Progress::update(std::int64_t done) {
  const auto now = Clock::now();
  if (now >= state_->next) state_->draw(done, now);
}

void Progress::State::draw(std::int64_t done, Clock::time_point now) {
  // Samples of an earlier run count in the share, but took none of this time.
  const double seconds =
      std::chrono::duration<double>(now - start).count() *
      (done > before ? static_cast<double>(done) / static_cast<double>(done - before) : 0);
  if (terminal) {
    // One column stays free: a full line would wrap. The rest of the line is erased after the text.
    const std::string text = progress_bar(label, done, total, seconds, terminal_columns() - 1);
    std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
    std::fflush(stderr);
    drawn = true;
    next = now + 100ms;
  } else {
    std::fprintf(stderr, "%s\n", progress_line(label, done, total, seconds).c_str());
    next = now + 10s;
  }
}

void Progress::finish() {
  if (state_->drawn) std::fputs("\r\x1b[K", stderr);
  state_->drawn = false;
}

}  // namespace firn::train
