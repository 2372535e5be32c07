// What a user of firn::mpi writes: mpirun -n 4 ./ranks
#include <firn/dist/mpi.h>
#include <firn/firn.h>

#include <iostream>

int main() {
  const firn::dist::Group group = firn::dist::mpi_group();
  const firn::Tensor x = firn::ones({3});
  group.all_reduce(x);
  std::cout << "rank " << group.rank() << " of " << group.size() << " over " << group.kind() << ": "
            << x.sum().item() << "\n";
}
