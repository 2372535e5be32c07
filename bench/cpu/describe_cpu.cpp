// Prints the code with which firn multiplies on this CPU, for the head of bench/run's table.
//   bench_cpu [--threads N]
#include <firn/firn.h>

#include "../harness.h"

int main(int argc, char** argv) {
  firn::set_num_threads(bench::Options(argc, argv).threads);
  std::printf("%s\n", firn::describe_cpu().c_str());
}
