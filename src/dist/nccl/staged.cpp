#include "dist/nccl/staged.h"

#include <vector>

#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"

namespace firn::dist {

void StagedTransport::run(const Call& call, const void* from, void* to) {
  const Device device = devices_->device();
  const Stream stream = current_stream(device);
  const auto ranks = static_cast<std::size_t>(size());
  const bool reads_parts =
      call.kind == CallKind::reduce_scatter || call.kind == CallKind::all_to_all;
  const bool writes_parts = call.kind == CallKind::all_gather || call.kind == CallKind::all_to_all;
  const std::size_t read = call.bytes() * (reads_parts ? ranks : 1);
  const std::size_t written = call.bytes() * (writes_parts ? ranks : 1);
  const bool in_place = call.kind == CallKind::all_reduce || call.kind == CallKind::broadcast;
  const runtime::Workspace input(read, stream), output(in_place ? 0 : written, stream);
  void* const there = input.as<std::byte>();
  void* const result = in_place ? there : output.as<std::byte>();
  if (read > 0) copy_bytes(there, device, from, Device::cpu(), read);
  devices_->run(call, there, result);
  if (written > 0) copy_bytes(to, Device::cpu(), result, device, written);
}

void StagedTransport::exchange_messages(std::span<const Message> messages) {
  const Device device = devices_->device();
  const Stream stream = current_stream(device);
  const auto bytes_of = [&](CallKind kind) {
    std::size_t bytes = 0;
    for (const Message& t : messages) bytes += t.call.kind == kind ? t.call.bytes() : 0;
    return bytes;
  };
  const runtime::Workspace sent(bytes_of(CallKind::send), stream),
      received(bytes_of(CallKind::recv), stream);
  std::vector<Message> there(messages.begin(), messages.end());
  for (Message& t : there) {
    if (t.call.kind == CallKind::recv) {
      t.to = received.data();
    } else {
      if (sent.bytes() > 0) copy_bytes(sent.data(), device, t.from, Device::cpu(), sent.bytes());
      t.from = sent.data();
    }
  }
  devices_->exchange_messages(there);
  for (const Message& t : messages)
    if (t.call.kind == CallKind::recv && received.bytes() > 0)
      copy_bytes(t.to, Device::cpu(), received.data(), device, received.bytes());
}

}  // namespace firn::dist
