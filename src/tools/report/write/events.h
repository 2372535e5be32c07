// Writes a log as an event file of TensorBoard. Its records are TFRecords (length and masked
// CRC-32C around each) of protobuf messages `Event` (tensorboard/compat/proto/event.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/report/log/run.h"

namespace firn::report {

/// CRC-32C (Castagnoli, RFC 3720), rotated and shifted by a constant, as TFRecord stores it.
std::uint32_t masked_crc32c(std::string_view bytes);

/// Writes FOLDER/events.out.tfevents.SECONDS.firn, where SECONDS is the start of the run, so that
/// writing again replaces the file. The x axis is applied steps. Numbers are f32, as in
/// TensorBoard's own scalars; a number that is not finite is NaN. Skipped steps are texts with
/// cause and parameter. Returns the path. Throws IoError.
std::string write_events(const Run& run, const std::string& folder);

}  // namespace firn::report
