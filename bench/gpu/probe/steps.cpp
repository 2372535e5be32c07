#include "bench/gpu/probe/steps.h"

#include <csignal>
#include <cstring>
#include <exception>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace probe {
namespace {

/// Report of a child to its parent, in shared memory.
struct Progress {
  std::size_t step = 0;  ///< the running step, or the first one not yet run
  bool running = false;  ///< false: the child ended between steps
  int failed = 0;        ///< steps that threw
};

Progress* shared_progress() {
  void* const memory =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error(std::string("mmap: ") + std::strerror(errno));
  return new (memory) Progress;
}

/// Runs steps in a child from progress.step on, as far as one process allows.
void run_in_child(const std::vector<Step>& steps, std::FILE* out, unsigned seconds,
                  Progress& progress) {
  const std::size_t first = progress.step;
  bool usable = true;
  while (usable && progress.step < steps.size()) {
    const Step& step = steps[progress.step];
    if (step.alone && progress.step != first) return;
    progress.running = true;
    alarm(seconds);  // ends the process
    {
      Line line(out, step.name);
      try {
        step.run(line);
      } catch (const Broken& e) {
        line.add(std::string("error: ") + e.what());
        ++progress.failed;
        usable = false;
      } catch (const std::exception& e) {
        line.add(std::string("error: ") + e.what());
        ++progress.failed;
      } catch (...) {
        line.add("error: an exception of an unknown type");
        ++progress.failed;
      }
    }
    alarm(0);
    ++progress.step;
    progress.running = false;
    usable = usable && !step.alone;
  }
}

std::string ending(int status, unsigned seconds) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return "took more than " + std::to_string(seconds) + " s";
  if (WIFSIGNALED(status))
    return "died of signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  return "ended the process with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Line::Line(std::FILE* out, const std::string& name) : out_(out) {
  std::fprintf(out_, "%s:", name.c_str());
  std::fflush(out_);
}

Line::~Line() {
  std::fputc('\n', out_);
  std::fflush(out_);
}

void Line::add(const std::string& text) {
  std::fputc(' ', out_);
  for (const char c : text) std::fputc(c == '\n' ? ' ' : c, out_);
  std::fflush(out_);
}

void Line::cell(const std::function<std::string()>& text, int width) {
  const auto padded = [&](std::string s) {
    if (s.size() < static_cast<std::size_t>(width)) s.resize(static_cast<std::size_t>(width), ' ');
    return s;
  };
  std::string result;
  try {
    result = text();
  } catch (const Broken&) {
    throw;
  } catch (const std::exception& e) {
    result = e.what();
  }
  add(padded(result));
}

int run_steps(const std::vector<Step>& steps, std::FILE* out, unsigned seconds) {
  Progress* const progress = shared_progress();
  int lost = 0;
  while (progress->step < steps.size()) {
    std::fflush(nullptr);  // or the child would print it again
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    if (child == 0) {
      run_in_child(steps, out, seconds, *progress);
      std::fflush(nullptr);
      _exit(0);  // destructors of CUDA's libraries could hang or crash
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (progress->running) {
      std::fprintf(out, " %s\n", ending(status, seconds).c_str());
      std::fflush(out);
      ++lost;
      ++progress->step;
      progress->running = false;
    }
  }
  const int failed = progress->failed;
  munmap(progress, sizeof(Progress));
  return lost + failed;
}

}  // namespace probe
