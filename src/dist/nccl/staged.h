// StagedTransport carries tensors of the host over devices, for ranks that have no other group.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "dist/transport.h"

namespace firn::dist {

/// Copies the input of a call to the device, makes the call there, and copies its output back. So
/// each call waits for the device.
class StagedTransport final : public Transport {
 public:
  explicit StagedTransport(std::shared_ptr<Transport> devices) : devices_(std::move(devices)) {}

  int rank() const noexcept override { return devices_->rank(); }
  int size() const noexcept override { return devices_->size(); }
  std::string_view kind() const noexcept override { return devices_->kind(); }
  double deadline() const noexcept override { return devices_->deadline(); }
  void run(const Call& call, const void* from, void* to) override;
  void exchange_messages(std::span<const Message> messages) override;
  void give_up(std::string_view why) noexcept override { devices_->give_up(why); }
  std::shared_ptr<Transport> split(const SplitPart& part) override {
    return std::make_shared<StagedTransport>(devices_->split(part));
  }
  void connect() override { devices_->connect(); }

 private:
  std::shared_ptr<Transport> devices_;
};

}  // namespace firn::dist
