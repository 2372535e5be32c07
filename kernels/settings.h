// Switches of the process that change which kernels run. The public ones have functions of their
// own (allow_tf32() in firn/ops.h, allow_nondeterministic() in firn/conv.h); tests and benchmarks
// set the others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace firn::kernels {

/// Whether CUDA devices may multiply f32 with 10 bits of mantissa (TF32). Off at first.
std::atomic<bool>& tf32_switch() noexcept;
inline bool tf32_allowed() noexcept { return tf32_switch().load(std::memory_order_relaxed); }

/// Whether CUDA devices may take algorithms that are not deterministic. Off at first.
std::atomic<bool>& nondeterministic_switch() noexcept;

/// How CUDA devices compute a dense layer: `fused` in the GEMM's epilogue, `unfused` in separate
/// kernels, `automatic` by what is faster on the architecture. FIRN_EPILOGUES sets what a process
/// starts with. A product that the library cannot do in one launch is unfused in any case.
enum class Epilogues : std::uint8_t { automatic, fused, unfused };
/// Throws Error at first use if FIRN_EPILOGUES says anything else.
std::atomic<Epilogues>& epilogues();

/// How CUDA devices compute convolutions: `automatic` by cuDNN if it is installed and takes them,
/// `im2col` always as matrix products of gathered columns. FIRN_CONVOLUTIONS=im2col sets the latter
/// for a process.
enum class ConvPath : std::uint8_t { automatic, im2col };
/// Throws Error at first use if FIRN_CONVOLUTIONS says anything else.
std::atomic<ConvPath>& conv_path();

/// Bytes of gathered columns at a time: a convolution whose columns need more runs in chunks.
std::atomic<std::size_t>& column_bytes() noexcept;

}  // namespace firn::kernels
