// Recurrent layers: RNN, GRU and LSTM of any depth, in one or both directions, and single steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/nn/module_of.h"
#include "firn/ops/recurrent.h"

namespace firn::nn {

/// Options of RNN, GRU and LSTM.
struct RecurrentLayerOptions {
  std::int64_t layers = 1;   ///< each reads the output of the one below
  bool bias = true;          ///< both products have a bias
  bool batch_first = false;  ///< x and output are [batch, steps, ...], not [steps, batch, ...]
  double dropout = 0;  ///< dropout of the output of every layer but the last, in training mode
  bool bidirectional = false;   ///< a second set of weights reads from the end
  std::int64_t projection = 0;  ///< LSTM only: units of h, less than `units`; 0: no projection
  bool relu = false;            ///< RNN only: max(., 0) in place of tanh
  DType dtype = f32;
  Device device = default_device();
};

/// Inputs of a call beside x. `d` is 2 if bidirectional, else 1.
struct RecurrentInput {
  Tensor h = {};  ///< [d layers, batch, p]; undefined: zeros
  Tensor c = {};  ///< LSTM: [d layers, batch, units]; undefined: zeros
  /// [batch], i64 or i32: the steps of each sequence; undefined: all. PyTorch uses packed sequences
  /// for this; here the sequences need no order.
  Tensor lengths = {};
};

/// Weights of all layers and directions, named as in PyTorch: "weight_ih_l0", "weight_hh_l0",
/// "bias_ih_l0", "bias_hh_l0", "weight_hr_l0", and "..._l0_reverse".
class RecurrentWeights {
 public:
  /// Weights of one layer and direction.
  struct Part {
    Parameter weight_ih;         ///< [gates units, in]
    Parameter weight_hh;         ///< [gates units, p]
    Parameter bias_ih, bias_hh;  ///< [gates units], or undefined
    Parameter weight_hr;         ///< [p, units], or undefined
  };

  /// Starts all uniform in (-1/sqrt(units), 1/sqrt(units)), from the default generator.
  RecurrentWeights(const char* layer, RecurrentCell cell, std::int64_t in, std::int64_t units,
                   const RecurrentLayerOptions& options);

  /// Returns the weights of a layer and direction. Throws Error if they do not exist.
  Part& at(std::int64_t layer, bool reverse = false);
  /// Passes all of them to the visitor under PyTorch's names, whatever the member is called.
  void visit(MemberVisitor& visitor, const std::string& name);

 private:
  std::vector<Part> parts_;
  bool bidirectional_;
};

namespace detail {

/// Common part of RNN, GRU and LSTM.
class RecurrentStack {
 public:
  RecurrentStack(const char* layer, RecurrentCell cell, std::int64_t in, std::int64_t units,
                 const RecurrentLayerOptions& options);
  RecurrentResult run(RecurrentWeights& weights, const Tensor& x, const RecurrentInput& input,
                      bool training) const;
  std::string repr() const;

 private:
  const char* name_;
  RecurrentCell cell_;
  std::int64_t in_, units_;
  RecurrentLayerOptions options_;
};

/// Base of the layers with these weights; `Derived` is the class.
template <class Derived>
class RecurrentLayer : public ModuleOf<Derived> {
 public:
  Tensor forward(const Tensor& x) override { return forward(x, {}).output; }
  RecurrentResult forward(const Tensor& x, const RecurrentInput& input) {
    return stack_.run(weights, x, input, this->training());
  }
  std::string extra_repr() const override { return stack_.repr(); }

  RecurrentWeights weights;  ///< weights of all layers and directions

 protected:
  RecurrentLayer(const char* layer, RecurrentCell cell, std::int64_t in, std::int64_t units,
                 const RecurrentLayerOptions& options)
      : weights(layer, cell, in, units, options), stack_(layer, cell, in, units, options) {}

 private:
  RecurrentStack stack_;
};

}  // namespace detail

/// x [steps, batch, in] -> output [steps, batch, d p], h [d layers, batch, p] and c [d layers,
/// batch, units]. p is the projection, or units; d is 2 if bidirectional. A call with x alone gives
/// the output alone, so that the layer may be part of a Sequential:
///
///   nn::LSTM lstm(64, 256, {.layers = 2, .bidirectional = true});
///   Tensor y = lstm(x);
///   auto [y, h, c] = lstm(x, nn::RecurrentInput{.lengths = lengths});
///
/// Without the batch axis, x [steps, in] gives [steps, d p], [d layers, p] and [d layers, units].
/// Padding may hold anything, and its output is 0. Formulas and precision: see recurrent().
class LSTM : public detail::RecurrentLayer<LSTM> {
 public:
  /// Throws Error unless the sizes are positive and 0 <= dropout < 1, with 0 for one layer.
  LSTM(std::int64_t in, std::int64_t units, const RecurrentLayerOptions& options = {});
  FIRN_DECLARE_MEMBERS()
};

/// Works as LSTM, without c. The bias of the candidate is inside the reset gate, as in PyTorch.
class GRU : public detail::RecurrentLayer<GRU> {
 public:
  /// Throws Error unless the sizes are positive and 0 <= dropout < 1.
  GRU(std::int64_t in, std::int64_t units, const RecurrentLayerOptions& options = {});
  FIRN_DECLARE_MEMBERS()
};

/// Works as LSTM, without c.
class RNN : public detail::RecurrentLayer<RNN> {
 public:
  /// Throws Error unless the sizes are positive and 0 <= dropout < 1.
  RNN(std::int64_t in, std::int64_t units, const RecurrentLayerOptions& options = {});
  FIRN_DECLARE_MEMBERS()
};

// ---- One step ----

struct RecurrentCellOptions {
  bool bias = true;   ///< both products have a bias
  bool relu = false;  ///< RNNCell only: max(., 0) in place of tanh
  DType dtype = f32;
  Device device = default_device();
};

/// The state of an LSTMCell.
struct CellState {
  Tensor h = {}, c = {};  ///< [batch, units] each; undefined: zeros
};

namespace detail {

/// Common part of the cells: PyTorch's parameters, and a step of recurrent().
class CellWeights {
 public:
  Parameter weight_ih;         ///< [gates units, in]
  Parameter weight_hh;         ///< [gates units, units]
  Parameter bias_ih, bias_hh;  ///< [gates units], or undefined

 protected:
  CellWeights(const char* layer, RecurrentCell cell, std::int64_t in, std::int64_t units,
              const RecurrentCellOptions& options);
  CellState step(const Tensor& x, const CellState& state) const;
  std::string repr() const;

 private:
  const char* name_;
  RecurrentCell cell_;
};

}  // namespace detail

/// One step of LSTM: x [batch, in] and the state give the next state. Without the batch axis, x
/// [in] gives [units]. The formulas and the precision are those of recurrent(), and the parameters
/// have PyTorch's names and start as those of LSTM do. In 16 bits c is rounded after each step,
/// while LSTM keeps it in f32 within a sequence.
///
///   nn::CellState state;
///   for (const Tensor& x : steps) state = cell(x, state);
class LSTMCell : public ModuleOf<LSTMCell>, public detail::CellWeights {
 public:
  /// Throws Error unless the sizes are positive.
  LSTMCell(std::int64_t in, std::int64_t units, const RecurrentCellOptions& options = {});

  /// Throws Error unless x ends with an axis of `in`, and the state fits to it.
  CellState forward(const Tensor& x, const CellState& state = {}) { return step(x, state); }
  std::string extra_repr() const override { return repr(); }
  FIRN_DECLARE_MEMBERS()
};

/// Works as LSTMCell, but its state is h [batch, units] alone. Without h it is zeros.
class GRUCell : public ModuleOf<GRUCell>, public detail::CellWeights {
 public:
  /// Throws Error unless the sizes are positive.
  GRUCell(std::int64_t in, std::int64_t units, const RecurrentCellOptions& options = {});

  Tensor forward(const Tensor& x, const Tensor& h) { return step(x, {.h = h}).h; }
  Tensor forward(const Tensor& x) override { return step(x, {}).h; }
  std::string extra_repr() const override { return repr(); }
  FIRN_DECLARE_MEMBERS()
};

/// Works as GRUCell.
class RNNCell : public ModuleOf<RNNCell>, public detail::CellWeights {
 public:
  /// Throws Error unless the sizes are positive.
  RNNCell(std::int64_t in, std::int64_t units, const RecurrentCellOptions& options = {});

  Tensor forward(const Tensor& x, const Tensor& h) { return step(x, {.h = h}).h; }
  Tensor forward(const Tensor& x) override { return step(x, {}).h; }
  std::string extra_repr() const override { return repr(); }
  FIRN_DECLARE_MEMBERS()
};

}  // namespace firn::nn
