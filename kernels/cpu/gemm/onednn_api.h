// oneDNN 2 and 3 behind one interface, for everything that their headers name differently.
#pragma once

#include <dnnl.hpp>

#include <cstdint>
#include <optional>
#include <vector>

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "firn knows the interfaces of oneDNN 2 and 3. Build it with -DFIRN_ONEDNN=OFF."
#endif

namespace firn::kernels::cpu::onednn {

/// The word that lets oneDNN use every instruction set of the CPU.
#if DNNL_VERSION_MAJOR == 2
inline constexpr dnnl_cpu_isa_t kEveryIsa = dnnl_cpu_isa_all;
#else
inline constexpr dnnl_cpu_isa_t kEveryIsa = dnnl_cpu_isa_default;
#endif

/// Sets the data of `memory`. Version 2 writes zeros to the padding of a format, on this stream.
inline void set_data(const dnnl::memory& memory, void* data,
                     [[maybe_unused]] const dnnl::stream& stream) {
#if DNNL_VERSION_MAJOR == 2
  memory.set_data_handle(data, stream);
#else
  memory.set_data_handle(data);
#endif
}

/// A format whose axes may be divided into blocks, which lie innermost.
struct Blocking {
  std::vector<std::int64_t> sizes, strides;      ///< axes' sizes, and strides over whole blocks
  std::vector<std::int64_t> blocks, block_axes;  ///< from the outermost block to the finest
};

/// Returns nullopt if the format is not blocked, pads a size or begins at an offset.
inline std::optional<Blocking> blocking_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR == 2
  const dnnl_memory_desc_t& m = desc.data;
  if (m.format_kind != dnnl_blocked || m.offset0 != 0) return {};
  const dnnl_blocking_desc_t& b = m.format_desc.blocking;
  for (int i = 0; i < m.ndims; ++i)
    if (m.dims[i] != m.padded_dims[i]) return {};
  return Blocking{{m.dims, m.dims + m.ndims},
                  {b.strides, b.strides + m.ndims},
                  {b.inner_blks, b.inner_blks + b.inner_nblks},
                  {b.inner_idxs, b.inner_idxs + b.inner_nblks}};
#else
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked ||
      desc.get_submemory_offset() != 0 || desc.get_dims() != desc.get_padded_dims())
    return {};
  return Blocking{desc.get_dims(), desc.get_strides(), desc.get_inner_blks(),
                  desc.get_inner_idxs()};
#endif
}

/// One convolution of images or volumes. Padding after the end may be negative.
struct ConvDescs {
  dnnl::memory::desc x, weights, bias, y;              ///< without a bias, its description is empty
  dnnl::memory::dims stride, dilation, before, after;  ///< a dilation of 0 is a dense kernel
};

using ForwardDesc = dnnl::convolution_forward::primitive_desc;
using DataDesc = dnnl::convolution_backward_data::primitive_desc;
using WeightDesc = dnnl::convolution_backward_weights::primitive_desc;

// These throw dnnl::error if oneDNN refuses the shape.
inline ForwardDesc forward_of(const ConvDescs& c, const dnnl::primitive_attr& attributes,
                              const dnnl::engine& engine) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR == 2
  return {{kind, direct, c.x, c.weights, c.bias, c.y, c.stride, c.dilation, c.before, c.after},
          attributes,
          engine};
#else
  return {engine, kind,     direct,     c.x,      c.weights, c.bias,
          c.y,    c.stride, c.dilation, c.before, c.after,   attributes};
#endif
}
/// `Desc` is DataDesc or WeightDesc.
template <class Desc>
Desc backward_of(const ConvDescs& c, const dnnl::primitive_attr& attributes,
                 const dnnl::engine& engine, const ForwardDesc& forward) {
  constexpr auto direct = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR == 2
  return {{direct, c.x, c.weights, c.y, c.stride, c.dilation, c.before, c.after},
          attributes,
          engine,
          forward};
#else
  return {engine,     direct,   c.x,     c.weights, c.y,       c.stride,
          c.dilation, c.before, c.after, forward,   attributes};
#endif
}

}  // namespace firn::kernels::cpu::onednn
