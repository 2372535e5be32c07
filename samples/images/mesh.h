// The mlp whose layers are sharded among ranks: --tensor-parallel and --pipeline.
#pragma once

#include <cstdint>
#include <memory>

#include "program/training.h"

namespace sample {

/// This rank's part of the mlp. Stage s of P has the layers [3 s/P, 3 (s + 1)/P). Within a stage
/// the ranks of --tensor-parallel shard the first layer by its outputs and the second by its
/// inputs. Each rank has the whole third layer. The starting weights are those of make_model() with
/// an equal seed or --load.
class ShardedMlp : public Sharded {
 public:
  /// All ranks make this call, as they do whole(). `options` are divided(), and their ranks are the
  /// group's.
  ShardedMlp(const Options& options, const firn::dist::Group& group);
  ~ShardedMlp() override;

  firn::nn::Module& stage() noexcept;
  const firn::dist::Mesh& mesh() const override { return mesh_; }
  firn::dist::Pipeline& pipeline() override { return pipeline_; }
  std::int64_t num_parameters() const override { return num_parameters_; }
  std::unique_ptr<firn::nn::Module> whole() const override;

 private:
  struct Stage;

  Options fresh_;  ///< the options without --load
  firn::dist::Mesh mesh_;
  std::unique_ptr<Stage> stage_;
  firn::dist::Pipeline pipeline_;
  std::int64_t num_parameters_ = 0;
};

}  // namespace sample
