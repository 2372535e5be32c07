// Shapes, dtypes and devices on streams, as errors show them.
#include <ostream>

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn {

void detail::print(std::ostream& out, const Dims& dims) { out << to_string(dims); }
std::ostream& operator<<(std::ostream& out, DType t) { return out << to_string(t); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace firn
