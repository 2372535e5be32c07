// Process-wide switches that choose which kernels run. The public ones have functions of their own
// (allow_tf32() in firn/ops/ops.h, allow_nondeterministic() in firn/ops/conv.h); tests and
// benchmarks set the others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace firn::kernels {

/// True if CUDA devices may multiply f32 with 10 bits of mantissa (TF32). Off by default.
std::atomic<bool>& tf32_switch() noexcept;
inline bool tf32_allowed() noexcept { return tf32_switch().load(std::memory_order_relaxed); }

/// True if the CPU may multiply f32 as sums of three bf16 numbers. Off by default.
std::atomic<bool>& bf16x3_switch() noexcept;
inline bool bf16x3_allowed() noexcept { return bf16x3_switch().load(std::memory_order_relaxed); }

/// True if a row of a matrix product must not depend on the number of rows. Off by default.
std::atomic<bool>& batch_invariance_switch() noexcept;
inline bool batch_invariance_required() noexcept {
  return batch_invariance_switch().load(std::memory_order_relaxed);
}

/// True if CUDA devices may use algorithms that are not deterministic. Off by default.
std::atomic<bool>& nondeterministic_switch() noexcept;

/// Ways in which CUDA devices compute a dense layer: `fused` in the GEMM's epilogue, `unfused` in
/// separate kernels, `automatic` whichever is faster on the architecture and as exact as the dtype.
/// FIRN_EPILOGUES sets the initial value. A product that the library cannot compute in one launch
/// is always unfused. relu is one kernel after the product in every case.
enum class Epilogues : std::uint8_t { automatic, fused, unfused };
/// Throws Error at first use if FIRN_EPILOGUES holds another word.
std::atomic<Epilogues>& epilogues();

/// Cases in which CUDA devices may divide the terms of an f32 product among blocks (split-K).
/// `automatic` does so if there are many terms, or if the result is too small to keep the device
/// busy. `by_depth` looks at the number of terms alone, so this choice does not depend on the
/// number of rows. cuBLASLt's choice of a kernel still may, so require_batch_invariance() stays
/// refused on CUDA devices. FIRN_SPLIT_K sets the initial value.
enum class SplitK : std::uint8_t { automatic, by_depth };
/// Throws Error at first use if FIRN_SPLIT_K holds another word.
std::atomic<SplitK>& split_k();

/// Ways in which CUDA devices compute convolutions: `automatic` by cuDNN if it is installed and
/// supports them, `im2col` always as GEMMs over gathered columns. FIRN_CONVOLUTIONS sets the
/// initial value.
enum class ConvPath : std::uint8_t { automatic, im2col };
/// Throws Error at first use if FIRN_CONVOLUTIONS holds another word.
std::atomic<ConvPath>& conv_path();

/// Kernels that CUDA devices run for attention. `automatic` takes cuDNN if it is installed,
/// supports the call and keeps the contract. `cudnn` also takes it for causal calls, where it lets
/// a NaN of a value reach queries that do not see it. `own` always takes firn's. FIRN_ATTENTION
/// sets the initial value.
enum class AttentionPath : std::uint8_t { automatic, own, cudnn };
/// Throws Error at first use if FIRN_ATTENTION holds another word.
std::atomic<AttentionPath>& attention_path();

/// Most bytes of gathered columns at a time. A convolution that needs more runs in chunks.
std::atomic<std::size_t>& column_bytes() noexcept;

}  // namespace firn::kernels
