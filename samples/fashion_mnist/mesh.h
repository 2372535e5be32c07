// The mlp whose layers are divided among ranks: --tensor-parallel and --pipeline.
#pragma once

#include <cstdint>
#include <memory>

#include "firn/dist/group.h"
#include "firn/dist/mesh.h"
#include "firn/dist/parallel/pipeline.h"
#include "firn/nn/module.h"
#include "options.h"

namespace sample {

/// This rank's part of the mlp. Stage s of P has the layers [3 s/P, 3 (s + 1)/P). Within a stage
/// the ranks of --tensor-parallel divide the first layer by its outputs and the second by its
/// inputs; each has the whole third. The starting weights are those of make_model(), with the same
/// seed or the same --load.
class DividedMlp {
 public:
  /// A call of all ranks, as whole() is. `options` are divided(), and their ranks are the group's.
  DividedMlp(const Options& options, const firn::dist::Group& group);
  ~DividedMlp();
  DividedMlp(const DividedMlp&) = delete;
  DividedMlp& operator=(const DividedMlp&) = delete;

  const firn::dist::Mesh& mesh() const noexcept { return mesh_; }
  firn::nn::Module& stage() noexcept;
  /// Runs the whole model, with the autocast of --precision.
  firn::dist::Pipeline& pipeline() noexcept { return pipeline_; }
  std::int64_t num_parameters() const noexcept { return num_parameters_; }  ///< of the whole model

  /// The model of make_model() with the weights of all ranks, which have them as they are now.
  std::unique_ptr<firn::nn::Module> whole() const;

 private:
  struct Stage;

  const Options& options_;
  firn::dist::Mesh mesh_;
  std::unique_ptr<Stage> stage_;
  firn::dist::Pipeline pipeline_;
  std::int64_t num_parameters_ = 0;
};

}  // namespace sample
