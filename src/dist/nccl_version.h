// Versions of NCCL that firn::nccl takes. This header does without NCCL's, because environment()
// uses it too, in the library firn, which is compiled without NCCL's header.
#pragma once

#include <fmt/format.h>

#include <string>

namespace firn::dist {

/// Oldest version that is taken, 2.18.1 of 2023. Communicators that do not block came with 2.14.
inline constexpr int kOldestNccl = 21801;

/// Returns a version as text: "2.28.9" for 22809.
inline std::string nccl_version_text(int version) {  // 2408 up to 2.8, 22809 from 2.9 on
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

/// Returns why firn, built for NCCL `major`, does not take this version, or "" if it does.
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
