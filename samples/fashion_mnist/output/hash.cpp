#include "output/hash.h"

#include "firn/firn.h"

#ifdef SAMPLE_HAS_OPENSSL

#include <fmt/format.h>
#include <openssl/evp.h>

#include <memory>

namespace sample {

bool can_hash() noexcept { return true; }

std::string hash_of(const firn::nn::Module& model) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const firn::Tensor& p : model.parameters()) {
    const firn::Tensor t = firn::contiguous(p.detach().to(firn::Device::cpu()));
    good = good && EVP_DigestUpdate(context.get(), t.view().data, t.bytes()) == 1;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (!good || EVP_DigestFinal_ex(context.get(), digest, &bytes) != 1)
    throw firn::Error("hash_of", "OpenSSL computed no SHA-256");
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace sample

#else

namespace sample {

bool can_hash() noexcept { return false; }
std::string hash_of(const firn::nn::Module&) {
  throw firn::Error("hash_of", "this program was built without OpenSSL", "install libssl-dev");
}

}  // namespace sample

#endif
