// Which versions of NCCL firn::nccl takes. Without NCCL's header, which the library firn itself is
// compiled without: environment() says the same.
#pragma once

#include <fmt/format.h>

#include <string>

namespace firn::dist {

/// The oldest that is taken, 2.18.1 of 2023. Communicators that do not block came with 2.14.
inline constexpr int kOldestNccl = 21801;

/// "2.28.9" of 22809.
inline std::string nccl_version_text(int version) {  // before 2.9 as 2408, then as 22809
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

/// Why firn, built for NCCL `major`, does not take this version; empty if it does.
inline std::string why_not_nccl(int version, int major) {
  if (version < kOldestNccl)
    return fmt::format("is NCCL {}, older than {}", nccl_version_text(version),
                       nccl_version_text(kOldestNccl));
  if (version / 10000 != major)
    return fmt::format("is NCCL {}, and firn was built for NCCL {}", nccl_version_text(version),
                       major);
  return "";
}

}  // namespace firn::dist
