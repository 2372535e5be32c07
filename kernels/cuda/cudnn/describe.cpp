// cuDNN as environment() describes it.
#include "kernels/settings/describe.h"

#include "kernels/cuda/cudnn/library.h"

namespace firn::kernels::cuda {

LibraryFacts cudnn_facts() {
  const gpu::Cudnn* const library = gpu::cudnn();
  if (!library) return {.version = "", .path = "", .tried = gpu::why_no_cudnn()};
  const auto number = library->cudnnGetVersion();  // 91900: CUDNN_VERSION since 9.0
  const auto part = [](std::size_t n) { return std::to_string(n); };
  return {
      .version = part(number / 10000) + "." + part(number / 100 % 100) + "." + part(number % 100),
      .path = library->path,
      .tried = ""};
}

}  // namespace firn::kernels::cuda
