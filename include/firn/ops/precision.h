// Settings of matrix products: how exact they are, and on which units they run.
#pragma once

namespace firn {

/// Allows f32 matrix products on CUDA devices to run on tensor cores in TF32, which keeps 10 of 23
/// mantissa bits. Off by default. Applies to all threads, from the next product on.
void allow_tf32(bool on) noexcept;
/// Returns the setting of allow_tf32().
bool tf32_allowed() noexcept;
/// Allows f32 matrix products on the CPU to run on its bf16 matrix unit: each factor is split into
/// three bf16 numbers, and the six largest of the nine products are added in f32. An element of the
/// result is off by at most (4 sqrt(6k) + 4) 2^-24 of the sum of its k absolute terms. Parts below
/// 2^-126 are lost, so factors below 2^-102 are off by up to 2^-125 each, times the factor that
/// they meet. Off by default. Without the unit (AMX), products stay in f32. Applies to all threads,
/// from the next product on.
void allow_bf16x3(bool on) noexcept;
/// Returns the setting of allow_bf16x3().
bool bf16x3_allowed() noexcept;
/// Makes matrix products batch-invariant: a row of a [m, k] x [k, n] has the same bits whatever m
/// and the other rows are. The order in which its terms are added then depends on n, k and the
/// dtype (in f64 also on the layout of the factors), not on m. Products of 16-bit factors always
/// are batch-invariant. f32 runs on firn's own kernel, which is slower for few rows, and f64 row by
/// row (figures in docs/performance.md). CUDA devices cannot promise it: products there throw Error
/// while it is required. Off by default. Applies to all threads, from the next product on.
void require_batch_invariance(bool on) noexcept;
/// Returns the setting of require_batch_invariance().
bool batch_invariance_required() noexcept;

}  // namespace firn
