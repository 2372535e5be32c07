// What a user of firn::nccl writes: a rank for each CUDA device of this machine.
#include <firn/dist/local.h>
#include <firn/dist/nccl.h>
#include <firn/firn.h>

#include <iostream>

int main() try {
  using namespace firn;
  const int devices = cuda_device_count();
  dist::run_local(devices > 0 ? devices : 1, [](const dist::Group& threads) {
    const Device device = Device::cuda(threads.rank());
    const dist::Group group = dist::nccl_group(threads, device);
    const Tensor x = ones({3}, device);
    group.all_reduce(x);
    if (group.rank() == 0)
      std::cout << group.size() << " ranks over " << group.kind() << ": " << x.sum().item() << "\n";
  });
} catch (const firn::Error& e) {
  std::cout << e.what() << "\n";
}
