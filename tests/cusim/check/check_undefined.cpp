// The functions that the compiler calls from kernels in check mode where an index or an alignment
// is wrong (-fsanitize=bounds,alignment). They take the place of libubsan's; a build with
// sanitizers has that, and the linker sends its calls here (--wrap).
#include <cstdint>

#include "check.h"
#include "engine/engine.h"

#define CALLER __builtin_return_address(0)

#ifdef CUSIM_WRAPS_HANDLERS
#define HANDLER(name) __wrap___ubsan_handle_##name
#else
#define HANDLER(name) __ubsan_handle_##name
#endif

extern "C" {

/// The beginning of UndefinedBehaviorSanitizer's records.
struct UbsanPlace {
  const char* file;
  std::uint32_t line, column;
};

static void report_undefined(const char* what, const UbsanPlace& place, const void* pc) {
  const cusim::EngineCode scope;
  cusim::engine.report_pc = pc;
  cusim::fail("%s at %s:%u", what, cusim::base_name(place.file), place.line);
}

#ifdef CUSIM_WRAPS_HANDLERS
void __real___ubsan_handle_out_of_bounds(UbsanPlace* place, void* index);
void __real___ubsan_handle_type_mismatch_v1(UbsanPlace* place, void* pointer);
#else
static void __real___ubsan_handle_out_of_bounds(UbsanPlace*, void*) {}
static void __real___ubsan_handle_type_mismatch_v1(UbsanPlace*, void*) {}
#endif

void HANDLER(out_of_bounds)(UbsanPlace* place, void* index) {
  if (!cusim::kernel_code) return __real___ubsan_handle_out_of_bounds(place, index);
  report_undefined("index out of the bounds of its array", *place, CALLER);
}
void HANDLER(type_mismatch_v1)(UbsanPlace* place, void* pointer) {
  if (!cusim::kernel_code) return __real___ubsan_handle_type_mismatch_v1(place, pointer);
  report_undefined("misaligned access", *place, CALLER);
}

}  // extern "C"
