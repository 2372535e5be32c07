// The libraries that multiply on the CPU in addition to firn's own kernels, as environment()
// describes them.
#include <string>

#include <Eigen/Core>

#include "kernels/settings/describe.h"
#ifdef FIRN_HAS_ONEDNN
#include <dnnl.h>
#endif

namespace firn::kernels::cpu {
namespace {

std::string dotted(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace

LibraryFacts onednn_facts() {
  LibraryFacts facts;
#ifdef FIRN_HAS_ONEDNN
  const dnnl_version_t* const version = dnnl_version();
  facts.version = dotted(version->major, version->minor, version->patch);
#endif
  return facts;
}

LibraryFacts eigen_facts() {
  LibraryFacts facts;
#ifdef EIGEN_PATCH_VERSION  // from Eigen 5 on, whose versions omit EIGEN_WORLD_VERSION
  facts.version = dotted(EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION, EIGEN_PATCH_VERSION);
#else
  facts.version = dotted(EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
#endif
  return facts;
}

}  // namespace firn::kernels::cpu
