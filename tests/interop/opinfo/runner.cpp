// firn_interop: answers scripts/interop. It computes an operation of the table with the arguments
// that it is sent, and the gradients for the seeds that come with them.
#include <cstdio>
#include <exception>

#include "interop/opinfo/table.h"
#include "interop/wire.h"

namespace firn::interop {
namespace {

/// Back-propagates the seeds of all results at once.
void backpropagate(const std::vector<Tensor>& results, const std::vector<Tensor>& seeds) {
  Tensor total;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!seeds[i].defined() || !results[i].requires_grad()) continue;
    const Tensor part = sum(mul(results[i], seeds[i]));
    total = total.defined() ? add(total, part) : part;
  }
  if (total.defined()) total.backward();
}

void answer(const Request& request) {
  const Entry* entry = find(request.op);
  if (!entry) return write_refusal(stdout, "there is no such operation in the table");
  try {
    const std::vector<Tensor> results = entry->call(request.arguments);
    if (results.size() == request.seeds.size()) backpropagate(results, request.seeds);
    std::vector<Tensor> gradients;
    for (const Tensor& leaf : request.arguments.leaves) gradients.push_back(leaf.grad());
    write_results(stdout, results, gradients);
  } catch (const std::exception& e) {
    write_refusal(stdout, e.what());
  }
}

int run() {
  std::vector<std::string> lines;
  for (const Entry& e : table())
    lines.push_back(std::string(e.name) + "|" + e.parameters + "|" +
                    (e.sums == Sums::yes ? "sums" : "elementwise"));
  write_table(stdout, lines);
  Request request;
  while (read(stdin, request)) answer(request);
  return 0;
}

}  // namespace
}  // namespace firn::interop

int main() {
  try {
    return firn::interop::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn_interop: %s\n", e.what());
    return 1;
  }
}
