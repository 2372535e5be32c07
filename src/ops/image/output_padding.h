// The limit of output_padding in transposed convolutions, for the op and its layer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace firn::ops {

/// Throws Error naming `op` unless output_padding along `axis` is in [0, max(stride, dilation)).
inline void check_output_padding(const char* op, const char* axis, std::int64_t output_padding,
                                 std::int64_t stride, std::int64_t dilation) {
  FIRN_CHECK(output_padding >= 0 && output_padding < std::max(stride, dilation), op,
             "with as much, the input could be longer by one",
             "output_padding {} along {} must be at least 0 and less than stride {} or dilation {}",
             output_padding, axis, stride, dilation);
}

}  // namespace firn::ops
