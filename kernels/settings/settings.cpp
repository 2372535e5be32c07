#include "kernels/settings/settings.h"

#include "kernels/settings/environment.h"

namespace firn::kernels {
std::atomic<bool>& tf32_switch() noexcept {
  static std::atomic<bool> on{false};
  return on;
}

std::atomic<bool>& bf16x3_switch() noexcept {
  static std::atomic<bool> on{false};
  return on;
}

std::atomic<bool>& batch_invariance_switch() noexcept {
  static std::atomic<bool> on{false};
  return on;
}

std::atomic<bool>& nondeterministic_switch() noexcept {
  static std::atomic<bool> on{false};
  return on;
}

std::atomic<Epilogues>& epilogues() {
  static std::atomic<Epilogues> choice{
      from_environment<Epilogues>("FIRN_EPILOGUES", Epilogues::automatic,
                                  {{"fused", Epilogues::fused},
                                   {"unfused", Epilogues::unfused},
                                   {"automatic", Epilogues::automatic}})};
  return choice;
}

std::atomic<SplitK>& split_k() {
  static std::atomic<SplitK> choice{
      from_environment<SplitK>("FIRN_SPLIT_K", SplitK::automatic,
                               {{"by_depth", SplitK::by_depth}, {"automatic", SplitK::automatic}})};
  return choice;
}

std::atomic<ConvPath>& conv_path() {
  static std::atomic<ConvPath> path{from_environment<ConvPath>(
      "FIRN_CONVOLUTIONS", ConvPath::automatic,
      {{"im2col", ConvPath::im2col}, {"automatic", ConvPath::automatic}})};
  return path;
}

std::atomic<AttentionPath>& attention_path() {
  static std::atomic<AttentionPath> path{
      from_environment<AttentionPath>("FIRN_ATTENTION", AttentionPath::automatic,
                                      {{"own", AttentionPath::own},
                                       {"cudnn", AttentionPath::cudnn},
                                       {"automatic", AttentionPath::automatic}})};
  return path;
}

std::atomic<std::size_t>& column_bytes() noexcept {
  static std::atomic<std::size_t> bytes{std::size_t{64} << 20};
  return bytes;
}

}  // namespace firn::kernels
