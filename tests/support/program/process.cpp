// fork, exec and poll; openpty where a terminal is asked for.
#include "support/program/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace firn::test {
namespace {

struct Channel {
  int read_end = -1;
  int write_end = -1;
};

Channel make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  return {ends[0], ends[1]};
}

Channel make_terminal(int columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  Channel c;
  if (::openpty(&c.read_end, &c.write_end, nullptr, nullptr, &size) != 0)
    throw std::runtime_error("openpty failed");
  ::fcntl(c.read_end, F_SETFD, FD_CLOEXEC);
  return c;
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const RunOptions& options, const Channel& out, const Channel& err) {
  ::dup2(out.write_end, STDOUT_FILENO);
  ::dup2(err.write_end, STDERR_FILENO);
  for (const std::string& setting : options.environment) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos) {
      ::unsetenv(setting.c_str());
    } else {
      ::setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
  }
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

Ran run_program(const std::string& program, const std::vector<std::string>& arguments,
                const RunOptions& options) {
  const int columns = options.terminal_columns;
  const Channel out = options.terminal_out ? make_terminal(columns) : make_pipe();
  const Channel err = columns > 0 ? make_terminal(columns) : make_pipe();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become(program, arguments, options, out, err);
  ::close(out.write_end);
  ::close(err.write_end);

  Ran ran;
  pollfd watched[2] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  std::string* texts[2] = {&ran.out, &ran.err};
  bool interrupt = !options.interrupt_after.empty();
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    if (::poll(watched, 2, -1) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = ::read(watched[i].fd, buffer, sizeof buffer);
      if (n > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(n));
      } else {  // the end; a terminal says EIO
        ::close(watched[i].fd);
        watched[i].fd = -1;
      }
    }
    if (interrupt && ran.err.find(options.interrupt_after) != std::string::npos) {
      ::kill(child, SIGINT);
      interrupt = false;
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace firn::test
