// firn_same_bits [WORD]: prints one line "HASH  NAME" for each training whose name contains the
// word.
#include "same_bits.h"

#include <cstdio>
#include <exception>

namespace same_bits {

using namespace firn;

void Hash::add(const void* bytes, std::size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) value_ = (value_ ^ at[i]) * 0x100000001b3u;
}

void Hash::add(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(Device::cpu()).contiguous();
  add(flat.view().data, static_cast<std::size_t>(flat.numel()) * size_of(flat.dtype()));
}

void Hash::add(const nn::Module& net, const optim::Optimizer& optimizer) {
  for (const auto& list : {net.named_parameters(), net.named_buffers()})
    for (const auto& [name, tensor] : list) {
      add(name);
      if (tensor.defined()) add(tensor);
    }
  for (const auto& [name, tensor] : optimizer.state()) {
    if (name == "step_state" || name == "schedule" || name == "loss_scale") continue;
    add(name);
    add(tensor);
  }
  add(optimizer.loss_scale());
  add(optimizer.lr());
}

Batch::Batch(std::int64_t rows, std::uint64_t seed, DType dtype) {
  Generator generator(seed);
  const DeviceScope host(Device::cpu());
  x = randn({rows, 10}, {.generator = &generator}).to(dtype);
  y = randint(0, 5, {rows}, {.generator = &generator});
}

const char* name_of(DType dtype) { return dtype == f16 ? "f16" : dtype == bf16 ? "bf16" : "f32"; }

}  // namespace same_bits

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  firn::set_warning_handler([](const std::string&) {});
  for (const auto& list :
       {same_bits::trainings_of_one_process(), same_bits::trainings_over_ranks()})
    for (const auto& [name, run] : list) {
      if (name.find(word) == std::string::npos) continue;
      same_bits::Hash hash;
      try {
        run(hash);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
        return 1;
      }
      std::printf("%016llx  %s\n", static_cast<unsigned long long>(hash.value()), name.c_str());
      std::fflush(stdout);
    }
}
