#include "kernels/cpu/conv/onednn.h"

#ifdef FIRN_HAS_ONEDNN
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/cpu/conv/onednn_faults.h"
#include "kernels/cpu/conv/primitive.h"
#include "kernels/cpu/device/reserve.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/onednn_api.h"
#endif

namespace firn::kernels::cpu {

#ifdef FIRN_HAS_ONEDNN
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using onednn::engine;

bool scratch_needed(const Desc& scratch) { return scratch.get_size() > 0; }
/// Scratchpads of primitives come from firn's allocator.
std::int64_t scratch_size(const Desc& scratch) {
  return scratch_needed(scratch) ? static_cast<std::int64_t>(scratch.get_size()) : 1;
}
Workspace workspace(const Desc& scratch) { return Workspace({scratch_size(scratch)}, DType::u8); }
dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

/// Both formats of a weight as views of one shape, whose last axes are the blocks of `packed`.
struct Formats {
  View packed, plain;
};

/// Returns nullopt if views cannot express the formats: sizes are padded, or a format is not
/// blocked.
std::optional<Formats> as_views(const Desc& packed, const Desc& plain, DType dtype) {
  const auto in = onednn::blocking_of(packed), out = onednn::blocking_of(plain);
  if (!in || !out || in->sizes.size() + in->blocks.size() > kMaxRank) return {};
  Formats v;
  v.packed.dtype = v.plain.dtype = dtype;
  Dims step;  // strides in `plain`
  for (std::size_t i = 0; i < in->sizes.size(); ++i) {
    v.packed.shape.push_back(in->sizes[i]);
    v.packed.strides.push_back(in->strides[i]);
    step.push_back(out->strides[i]);
  }
  // The innermost block comes last; if an axis is blocked twice, its last block is the finest.
  Dims sizes, steps, strides;
  std::int64_t stride = 1;
  for (std::size_t i = in->blocks.size(); i-- > 0;) {
    const auto axis = static_cast<int>(in->block_axes[i]);
    const std::int64_t size = in->blocks[i];
    sizes.insert(0, size);
    strides.insert(0, stride);
    steps.insert(0, step[axis]);
    stride *= size;
    step[axis] *= size;
    v.packed.shape[axis] /= size;
  }
  v.plain.strides = step;
  for (int i = 0; i < sizes.size(); ++i) {
    v.packed.shape.push_back(sizes[i]);
    v.packed.strides.push_back(strides[i]);
    v.plain.strides.push_back(steps[i]);
  }
  v.plain.shape = v.packed.shape;
  return v;
}

class Convolution final : public OnednnConv {
 public:
  /// Throws dnnl::error if oneDNN refuses the shape.
  Convolution(ConvPass pass, DType dtype, std::span<const ConvSizes> shapes, bool bias)
      : pass_(pass),
        weights_dtype_(pass == ConvPass::weight ? DType::f32 : dtype),
        dtype_(dtype),
        type_(dtype == DType::bf16 ? Type::bf16 : Type::f32),
        bias_(bias) {
    const ConvSizes& z = shapes.front();
    const bool grouped = z.groups() > 1;
    dnnl::memory::dims sizes{z.kernels(), z.channels()};
    if (grouped) sizes.insert(sizes.begin(), z.groups());
    if (z.volumes) sizes.push_back(z.t);
    sizes.insert(sizes.end(), {z.r, z.s});
    const Type of_weights = pass == ConvPass::weight ? Type::f32 : type_;
    plain_ =
        Desc(sizes, of_weights,
             z.volumes ? (grouped ? Tag::godhwi : Tag::odhwi) : (grouped ? Tag::gohwi : Tag::ohwi));
    any_ = Desc(sizes, type_, Tag::any);
    weights_ = Desc(sizes, of_weights, Tag::any);
    for (const ConvSizes& shape : shapes) add(shape);
    views_ = as_views(weights_, plain_, weights_dtype_);
    if (copies_views()) return;
    to_packed_ = Reorder(plain_, weights_);
    to_plain_ = Reorder(weights_, plain_);
  }

  /// True if oneDNN has optimised code for this, not a reference loop or a GEMM, and computes it
  /// right.
  bool usable() const noexcept { return fast_ && !faulty_; }

  std::int64_t weights_size() const override {
    return static_cast<std::int64_t>(weights_.get_size() / size_of(weights_dtype_));
  }
  std::int64_t scratch_bytes() const override {
    std::int64_t most = 0;
    for (const Block& block : blocks_)
      most = std::max(most, slot_bytes(scratch_size(block.scratch)));
    return most;
  }
  void pack(const void* plain, void* packed) const override {
    if (copies_views()) return copy_views(packed, plain, true);
    to_packed_.run(plain, packed);
  }
  void unpack(const void* packed, void* plain) const override {
    if (copies_views()) return copy_views(packed, plain, false);
    to_plain_.run(packed, plain);
  }

  void run(std::size_t shape, const void* x, const void* weights, const float* bias,
           const void* y) const override {
    const Block& b = blocks_[shape];
    const Workspace scratch = workspace(b.scratch);
    if (reads_unwritten()) std::memset(scratch.view().data, 0, b.scratch.get_size());
    b.primitive.run({x, weights, y, scratch.view().data, bias});
  }

 private:
  struct Block {
    onednn::Primitive primitive;
    Desc scratch;
  };

  /// A conversion between formats of the weights, created beforehand.
  class Reorder {
   public:
    Reorder() = default;
    Reorder(const Desc& from, const Desc& to) {
      const Reserve reserve(kMakeReserve, kCodeReserve);
      const dnnl::reorder::primitive_desc chosen(engine(), from, engine(), to, own_scratch());
      scratch_ = chosen.scratchpad_desc();
      primitive_ = onednn::Primitive(
          dnnl::reorder(chosen),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch_}});
    }
    void run(const void* from, void* to) const {
      const Workspace scratch = workspace(scratch_);
      if (runtime::dry_run()) return;
      primitive_.run({from, to, scratch.view().data});
    }

   private:
    onednn::Primitive primitive_;
    Desc scratch_;
  };

  void add(const ConvSizes& z) {
    const ConvGeometry& g = z.geometry;
    dnnl::memory::dims in{z.n, z.c}, out{z.n, z.k};
    dnnl::memory::dims stride, before, gaps;
    dnnl::memory::dims after;  // chosen so that the output is exact; may be negative
    const auto axis = [&](std::int64_t from, std::int64_t taps, std::int64_t to, std::int64_t step,
                          std::int64_t zeros, std::int64_t dilation) {
      in.push_back(from);
      out.push_back(to);
      stride.push_back(step);
      before.push_back(zeros);
      gaps.push_back(dilation - 1);
      after.push_back((to - 1) * step + dilation * (taps - 1) + 1 - from - zeros);
    };
    if (z.volumes) axis(z.d, z.t, z.o, g.depth.stride, g.depth.before, g.depth.dilation);
    axis(z.h, z.r, z.p, g.stride[0], g.before[0], g.dilation[0]);
    axis(z.w, z.s, z.q, g.stride[1], g.before[1], g.dilation[1]);
    const Tag tag = z.volumes ? Tag::ndhwc : Tag::nhwc;
    onednn::ConvDescs descs{Desc(in, type_, tag),
                            pass_ == ConvPass::forward ? weights_ : any_,
                            bias_ ? Desc({z.k}, Type::f32, Tag::a) : Desc(),
                            Desc(out, type_, tag),
                            stride,
                            gaps,
                            before,
                            after};
    Block b;
    const Reserve reserve(kMakeReserve, kCodeReserve);
    const dnnl::primitive_attr attributes = own_scratch();
    const auto keep = [&](const auto& chosen, const Desc& weights, auto make) {
      weights_ = weights;
      b.scratch = chosen.scratchpad_desc();
      b.primitive = onednn::Primitive(make(chosen), arguments(descs, b.scratch));
      const std::string_view name = chosen.impl_info_str();
      fast_ = fast_ && name.find("ref") == name.npos && name.find("gemm") == name.npos;
      faulty_ = faulty_ || onednn_is_wrong(pass_, dtype_, z, name);
    };
    const auto forward = onednn::forward_of(descs, attributes, engine());
    descs.weights = weights_;
    if (pass_ == ConvPass::forward) {
      keep(forward, forward.weights_desc(),
           [](const auto& pd) { return dnnl::convolution_forward(pd); });
    } else if (pass_ == ConvPass::data) {
      const auto data = onednn::backward_of<onednn::DataDesc>(descs, attributes, engine(), forward);
      keep(data, data.weights_desc(),
           [](const auto& pd) { return dnnl::convolution_backward_data(pd); });
    } else {
      const auto weight =
          onednn::backward_of<onednn::WeightDesc>(descs, attributes, engine(), forward);
      keep(weight, weight.diff_weights_desc(),
           [](const auto& pd) { return dnnl::convolution_backward_weights(pd); });
    }
    blocks_.push_back(std::move(b));
  }

  /// Returns the arguments in the order in which run() gives the data.
  std::vector<onednn::Primitive::Argument> arguments(const onednn::ConvDescs& descs,
                                                     const Desc& scratch) const {
    std::vector<onednn::Primitive::Argument> all{
        {pass_ == ConvPass::data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, descs.x},
        {pass_ == ConvPass::weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights_},
        {pass_ == ConvPass::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, descs.y},
        {DNNL_ARG_SCRATCHPAD, scratch}};
    if (bias_) all.push_back({DNNL_ARG_BIAS, descs.bias});
    return all;
  }

  /// oneDNN pads rows of bf16 with scratch memory that it does not write, and multiplies that by 0.
  /// Garbage there may be a NaN.
  bool reads_unwritten() const noexcept {
    return pass_ == ConvPass::weight && dtype_ == DType::bf16;
  }

  /// oneDNN's own conversion is faster if all fits a cache. For the weights of large layers it is
  /// 20 times slower than a copy of views.
  bool copies_views() const {
    constexpr std::int64_t kLarge = std::int64_t{1} << 16;
    return views_ && weights_size() >= kLarge;
  }
  void copy_views(const void* packed, const void* plain, bool pack) const {
    Formats v = *views_;
    v.packed.data = const_cast<void*>(packed);
    v.plain.data = const_cast<void*>(plain);
    return pack ? kernels::copy(v.plain, v.packed, Stream{})
                : kernels::copy(v.packed, v.plain, Stream{});
  }

  ConvPass pass_;
  DType weights_dtype_, dtype_;
  Type type_;
  bool bias_;
  bool fast_ = true, faulty_ = false;
  Desc plain_, any_, weights_;
  std::optional<Formats> views_;
  Reorder to_packed_, to_plain_;
  std::vector<Block> blocks_;
};

/// True if another way is faster, because there are few channels. The gradient of the input then
/// takes im2col, as oneDNN always computes 16 channels at a time. The gradient of bf16 weights in
/// groups takes f32.
bool thin(ConvPass pass, DType dtype, const ConvSizes& z) {
  if (z.groups() == 1) return pass == ConvPass::data && z.channels() < 8;
  return pass == ConvPass::weight && dtype == DType::bf16 && z.channels() <= 4;
}

/// True if strides, dilations and padding are small enough for oneDNN. Its code has offsets of 32
/// bits, and crashes if they overflow.
bool countable(const ConvGeometry& g) {
  constexpr std::int64_t kMost = std::int64_t{1} << 16;
  const auto small = [](auto... numbers) { return std::max({numbers...}) <= kMost; };
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    if (!small(g.stride[i], g.dilation[i], g.before[i], g.after[i])) return false;
  return small(g.depth.stride, g.depth.dilation, g.depth.before, g.depth.after);
}

class Cache {
 public:
  using Key = std::array<std::int64_t, 22 + 4 * OnednnConv::kShapes>;

  std::shared_ptr<const OnednnConv> find(ConvPass pass, DType dtype,
                                         std::span<const ConvSizes> shapes, bool bias) {
    const ConvSizes& z = shapes.front();
    const ConvGeometry& g = z.geometry;
    Key key{static_cast<std::int64_t>(pass),
            static_cast<std::int64_t>(dtype),
            bias,
            z.volumes,
            z.c,
            z.h,
            z.w,
            z.k,
            z.t,
            z.r,
            z.s,
            z.p,
            z.q,
            g.stride[0],
            g.stride[1],
            g.before[0],
            g.before[1],
            g.dilation[0],
            g.dilation[1],
            g.groups,
            g.depth.stride,
            g.depth.dilation};
    std::size_t at = 22;
    for (const ConvSizes& shape : shapes)
      for (const std::int64_t own : {shape.n, shape.d, shape.o, shape.geometry.depth.before})
        key[at++] = own;
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    if (known_.size() >= kMost) known_.clear();
    // The entry is made first, so that nothing can fail once the primitives exist.
    const auto place = known_.emplace(key, nullptr).first;
    try {
      place->second = make(pass, dtype, shapes, bias);
      if (!has_made_) end_before_onednn();
      has_made_ = true;
    } catch (...) {
      known_.erase(place);
      throw;
    }
    return place->second;
  }

  std::mutex& mutex() noexcept { return mutex_; }

 private:
  /// Returns null if oneDNN refuses the shape, which is left to im2col. Throws OutOfMemory.
  static std::shared_ptr<const OnednnConv> make(ConvPass pass, DType dtype,
                                                std::span<const ConvSizes> shapes, bool bias) {
    const OneThread guard(/*holds_lock=*/true);
    if (!guard.usable()) return nullptr;
    const Reserve reserve(kMakeReserve);  // oneDNN 3 has its descriptions on the heap
    try {
      auto all = std::make_shared<Convolution>(pass, dtype, shapes, bias);
      if (all->usable()) return all;
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory)
        throw OutOfMemory("no memory left for the code of a convolution", kMakeReserve);
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("no memory left for the code of a convolution", kMakeReserve);
    }
    return nullptr;
  }

  static constexpr std::size_t kMost = 1024;
  std::mutex mutex_;
  bool has_made_ = false;
  std::map<Key, std::shared_ptr<const OnednnConv>> known_;
};

// The cache is never destroyed: tensors with static storage duration may be used after main().
Cache& cache() {
  static Cache& all = []() -> Cache& {
    auto made = std::make_unique<Cache>();
    // fork() waits for the cache's lock, so a child can use the cache. Registration comes last: if
    // memory ran out after it, the next try would register the lock again.
    if (pthread_atfork([] { cache().mutex().lock(); }, [] { cache().mutex().unlock(); },
                       [] { cache().mutex().unlock(); }) != 0)
      throw std::bad_alloc();
    return *made.release();
  }();
  return all;
}

}  // namespace

std::shared_ptr<const OnednnConv> OnednnConv::find(ConvPass pass, DType dtype,
                                                   std::span<const ConvSizes> shapes, bool bias) {
  const ConvSizes& z = shapes.front();
  if (z.n == 0 || z.image_work() == 0 || thin(pass, dtype, z) || !countable(z.geometry) ||
      onednn_ended())
    return nullptr;
  return cache().find(pass, dtype, shapes, bias);
}
#else
std::shared_ptr<const OnednnConv> OnednnConv::find(ConvPass, DType, std::span<const ConvSizes>,
                                                   bool) {
  return nullptr;
}
#endif

}  // namespace firn::kernels::cpu
