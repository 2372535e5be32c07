// firn_interop: answers scripts/interop. It computes an operation of the table with the arguments
// that it is sent, and the gradients for the seeds that come with them. `firn_interop --time`
// answers bench/every_op: it times the operation instead (timing.h).
#include <cstdio>
#include <exception>
#include <string_view>

#include "interop/opinfo/table.h"
#include "interop/opinfo/timing.h"
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

/// What Request::second_seeds asks for; undefined if nothing depends on it.
std::vector<Tensor> second_derivatives(const Request& request, const std::vector<Tensor>& results) {
  std::vector<Tensor> flows, seeds, inputs = request.arguments.leaves;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!request.seeds[i].defined()) continue;
    const Tensor seed = request.seeds[i].detach().set_requires_grad();
    inputs.push_back(seed);
    if (!results[i].requires_grad()) continue;
    flows.push_back(results[i]);
    seeds.push_back(seed);
  }
  if (flows.empty()) return std::vector<Tensor>(inputs.size());
  const std::vector<Tensor> first =
      grad(flows, request.arguments.leaves,
           {.initial_gradients = seeds, .create_graph = true, .allow_unused = true});
  Tensor total;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!first[i].defined() || !first[i].requires_grad()) continue;
    const Tensor part = sum(mul(first[i], request.second_seeds[i]));
    total = total.defined() ? add(total, part) : part;
  }
  if (!total.defined()) return std::vector<Tensor>(inputs.size());
  return grad({total}, inputs, {.allow_unused = true});
}

void answer(const Request& request) {
  const Entry* entry = find(request.op);
  if (!entry) return write_refusal(stdout, "there is no such operation in the table");
  try {
    const std::vector<Tensor> results = entry->call(request.arguments);
    if (!request.second_seeds.empty())
      return write_results(stdout, {}, second_derivatives(request, results));
    if (results.size() == request.seeds.size()) backpropagate(results, request.seeds);
    std::vector<Tensor> gradients;
    for (const Tensor& leaf : request.arguments.leaves) gradients.push_back(leaf.grad());
    write_results(stdout, results, gradients);
  } catch (const std::exception& e) {
    write_refusal(stdout, e.what());
  }
}

int run(bool timed) {
  std::vector<std::string> lines;
  for (const Entry& e : table())
    lines.push_back(std::string(e.name) + "|" + e.parameters + "|" +
                    (e.sums == Sums::yes ? "sums" : "elementwise"));
  write_table(stdout, lines);
  if (timed) {
    answer_timings();
    return 0;
  }
  Request request;
  while (read(stdin, request)) answer(request);
  return 0;
}

}  // namespace
}  // namespace firn::interop

int main(int argc, char** argv) {
  try {
    return firn::interop::run(argc == 2 && std::string_view(argv[1]) == "--time");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn_interop: %s\n", e.what());
    return 1;
  }
}
