#include "train/fit/kept_report.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "firn/ops/ops.h"

namespace firn::train {
namespace {

constexpr std::int64_t kRoom = 8192;

class Writer {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void add(const std::vector<metrics::Value>& values, std::size_t room) {
    std::vector<std::uint8_t> all;
    all.swap(bytes_);
    std::int64_t count = 0;
    for (const metrics::Value& v : values) {
      if (all.size() + bytes_.size() + v.name.size() + 24 > room) break;
      add(static_cast<std::int64_t>(v.name.size()));
      bytes_.insert(bytes_.end(), v.name.begin(), v.name.end());
      add(v.value);
      ++count;
    }
    all.swap(bytes_);
    add(count);
    bytes_.insert(bytes_.end(), all.begin(), all.end());
  }
  const std::vector<std::uint8_t>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// Reads zeros after the end, so damaged bytes give an empty report.
class Reader {
 public:
  explicit Reader(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}
  template <class T>
  T take() {
    T value{};
    if (bytes_.size() - at_ >= sizeof value) {
      std::memcpy(&value, bytes_.data() + at_, sizeof value);
      at_ += sizeof value;
    }
    return value;
  }
  std::vector<metrics::Value> values() {
    std::vector<metrics::Value> out;
    for (auto count = take<std::int64_t>(); count > 0 && at_ < bytes_.size(); --count) {
      const auto length = static_cast<std::uint64_t>(take<std::int64_t>());
      if (length > bytes_.size() - at_) break;
      std::string name(bytes_.begin() + static_cast<std::ptrdiff_t>(at_),
                       bytes_.begin() + static_cast<std::ptrdiff_t>(at_ + length));
      at_ += length;
      out.push_back({std::move(name), take<double>()});
    }
    return out;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace

Tensor room_for_report() { return zeros({kRoom}, u8, Device::cpu()); }

void keep_report(const EpochReport& r, const Tensor& room) {
  Writer w;
  w.add(r.epoch);
  w.add(r.samples);
  w.add(r.train_loss);
  w.add(static_cast<std::int64_t>(r.validated));
  w.add(r.validation_loss);
  w.add(r.lr);
  w.add(r.loss_scale);
  w.add(r.applied_steps);
  w.add(r.skipped_steps);
  w.add(r.train_losses, kRoom / 2);
  w.add(r.metrics, kRoom);
  std::vector<std::uint8_t> bytes = w.bytes();
  bytes.resize(kRoom);
  copy_(room, tensor(bytes, {kRoom}, Device::cpu()));
}

EpochReport kept_report(const Tensor& room) {
  Reader in(room.to_vector<std::uint8_t>());
  EpochReport r;
  r.epoch = in.take<std::int64_t>();
  r.samples = in.take<std::int64_t>();
  r.train_loss = in.take<double>();
  r.validated = in.take<std::int64_t>() != 0;
  r.validation_loss = in.take<double>();
  r.lr = in.take<double>();
  r.loss_scale = in.take<double>();
  r.applied_steps = in.take<std::int64_t>();
  r.skipped_steps = in.take<std::int64_t>();
  r.train_losses = in.values();
  r.metrics = in.values();
  return r;
}

}  // namespace firn::train
