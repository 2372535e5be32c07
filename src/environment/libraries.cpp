// The libraries that firn links. This file includes their headers only for their versions.
#include <fmt/format.h>
#include <zlib.h>

#include <cstdio>
#include <string>

#include "environment/parts.h"
#include "kernels/settings/describe.h"

#ifdef FIRN_HAS_LIBDEFLATE
#include <libdeflate.h>
#endif
#ifdef FIRN_HAS_PNG
#include <png.h>
#endif
#ifdef FIRN_HAS_JPEG
#include <jpeglib.h>  // needs <cstdio> before it
#endif

namespace firn::environment_parts {
namespace {

/// Describes a linked library; an empty version means that the build does without it.
Environment::Library linked(const char* name, const std::string& version) {
  Environment::Library library;
  library.name = name;
  library.version = version;
  library.built = !version.empty();
  library.found = library.built ? Environment::Found::yes : Environment::Found::no;
  return library;
}

std::string png_version() {
#ifdef FIRN_HAS_PNG
  const auto number = ::png_access_version_number();  // 10639
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
#else
  return "";
#endif
}

/// Returns the version from the header, since libjpeg has no function for it.
std::string jpeg_version() {
#if !defined(FIRN_HAS_JPEG)
  return "";
#elif defined(LIBJPEG_TURBO_VERSION_NUMBER)
  constexpr int kNumber = LIBJPEG_TURBO_VERSION_NUMBER;  // 2001005
  return fmt::format("{}.{}.{} (turbo)", kNumber / 1000000, kNumber / 1000 % 1000, kNumber % 1000);
#else
  return fmt::format("{}.{}", JPEG_LIB_VERSION / 10, JPEG_LIB_VERSION % 10);
#endif
}

}  // namespace

void add_libraries(Environment& e) {
  e.onednn = linked("oneDNN", kernels::cpu::onednn_facts().version);
  e.eigen = linked("Eigen", kernels::cpu::eigen_facts().version);
  e.zlib = linked("zlib", ::zlibVersion());
#ifdef FIRN_HAS_LIBDEFLATE
  e.libdeflate = linked("libdeflate", LIBDEFLATE_VERSION_STRING);
#else
  e.libdeflate = linked("libdeflate", "");
#endif
  e.png = linked("libpng", png_version());
  e.jpeg = linked("libjpeg", jpeg_version());
}

}  // namespace firn::environment_parts
