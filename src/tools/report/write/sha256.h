// SHA-256 (FIPS 180-4), with which a page names its own style and script.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace firn::report {

std::array<std::uint8_t, 32> sha256(std::string_view bytes);
/// Encodes as RFC 4648, with padding.
std::string base64(std::string_view bytes);
/// Returns "'sha256-...'", the name of a text in a content security policy.
std::string policy_hash(std::string_view text);

}  // namespace firn::report
