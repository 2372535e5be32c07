// What functions and layers refuse of an enum: numbers that none of its names has.
#include <cmath>
#include <filesystem>
#include <string>

#include "firn/firn.h"
#include "refused.h"

namespace firn::testing {
namespace {

/// A number that no enum has.
template <class Enum>
Enum odd() {
  return static_cast<Enum>(99);
}

void no_value(const char* op, const char* type, const std::function<void()>& call) {
  const std::string text = std::string(type) + " has no value 99; hint: use one of its names";
  refused(op, {text.c_str()}, call);
}

}  // namespace

TEST_CASE("refusals: operations and a number that is no name of an enum", "[ops]") {
  const Tensor x = zeros({1, 2, 4, 4}), w = zeros({2, 2, 1, 1}), rows = zeros({3, 2});
  const Tensor at = zeros({2}, i64);
  no_value("mlp", "Activation", [&] { mlp(rows, {zeros({2, 2})}, {}, odd<Activation>()); });
  no_value("conv2d", "Activation", [&] { conv2d(x, w, {}, {.activation = odd<Activation>()}); });
  no_value("embedding_bag", "BagMode", [&] {
    embedding_bag(rows, zeros({2, 2}, i64), {.mode = odd<BagMode>()});
  });
  no_value("scatter_reduce", "ScatterReduce",
           [&] { return scatter_reduce(zeros({2}), 0, at, zeros({2}), odd<ScatterReduce>()); });
  no_value("index_reduce", "ScatterReduce", [&] {
    return index_reduce(rows, 0, at, zeros({2, 2}), odd<ScatterReduce>());
  });
  no_value("matrix_norm", "MatrixNorm",
           [&] { linalg::matrix_norm(rows, odd<linalg::MatrixNorm>()); });
  no_value("upsample1d", "Upsampling", [&] { upsample1d(zeros({1, 2, 4}), 8, odd<Upsampling>()); });
  no_value("upsample2d", "Upsampling", [&] { upsample2d(x, {8, 8}, odd<Upsampling>()); });
  no_value("upsample3d", "Upsampling", [&] {
    upsample3d(zeros({1, 2, 4, 4, 4}), {8, 8, 8}, odd<Upsampling>());
  });
  no_value("pad", "PadMode", [&] { pad(rows, {1, 1}, {1, 1}, odd<PadMode>()); });
  no_value("quantile", "Interpolation",
           [&] { quantile(rows, 0.5, {.interpolation = odd<Interpolation>()}); });
  no_value("checkpoint", "Keep", [&] {
    const Tensor leaf = ones({2}).set_requires_grad();
    checkpoint(
        {.keep = odd<Keep>()}, [](const Tensor& t) { return exp(t); }, leaf);
  });
  no_value("empty", "MemoryFormat", [&] { empty({1, 2, 3, 4}, {.format = odd<MemoryFormat>()}); });
  refused("zeros", {"99 is not the number of a dtype"}, [&] { zeros({2}, odd<DType>()); });
  refused("cast", {"99 is not the number of a dtype"}, [&] { cast(rows, odd<DType>()); });
  no_value("device", "DeviceType", [] { zeros({2}, Device(odd<DeviceType>())); });
}

TEST_CASE("refusals: layers and a number that is no name of an enum", "[ops]") {
  no_value("MLP", "Activation", [] { nn::MLP({2, 3, 2}, {.activation = odd<Activation>()}); });
  no_value("Conv1d", "Activation", [] { nn::Conv1d(1, 1, 1, {.activation = odd<Activation>()}); });
  no_value("Conv2d", "Activation", [] { nn::Conv2d(1, 1, 1, {.activation = odd<Activation>()}); });
  no_value("Conv3d", "Activation", [] { nn::Conv3d(1, 1, 1, {.activation = odd<Activation>()}); });
  no_value("Residual", "Activation", [] { nn::Residual(nn::Linear(2, 2), odd<Activation>()); });
  no_value("GELU", "Form", [] { nn::GELU{odd<nn::GELU::Form>()}; });
  no_value("BatchNorm1d", "BatchNormMode",
           [] { nn::BatchNorm1d(2, {.accumulation = odd<nn::BatchNormMode>()}); });
  nn::BatchNorm1d norm(2);
  no_value("BatchNorm1d", "BatchNormMode",
           [&] { norm.set_accumulation(odd<nn::BatchNormMode>()); });
  no_value("convert_batch_norm", "BatchNormMode",
           [&] { nn::convert_batch_norm(norm, odd<nn::BatchNormMode>()); });
  no_value("Buffer", "OnConversion",
           [] { const nn::Buffer b(zeros({1}), odd<nn::OnConversion>()); });
  no_value("init::gain", "Nonlinearity", [] { nn::init::gain(odd<nn::init::Nonlinearity>()); });
  no_value("init::kaiming_normal_", "Fan", [] {
    nn::init::kaiming_normal_(zeros({2, 2}), {.fan = odd<nn::init::Fan>()});
  });
  no_value("checkpoint_blocks", "Keep", [] {
    nn::Sequential net{nn::Residual(nn::Linear(2, 2))};
    nn::checkpoint_blocks(net, {.every = 1, .keep = odd<Keep>()});
  });
}

TEST_CASE("refusals: training and a number that is no name of an enum", "[ops][host]") {
  const Tensor w = ones({2}).set_requires_grad(), v = ones({2}).set_requires_grad();
  optim::SGD opt({w});
  no_value("flush", "Partial", [&] { opt.flush(odd<optim::Partial>()); });
  no_value("step_all", "SkipPolicy", [&] { optim::step_all({&opt}, odd<optim::SkipPolicy>()); });
  no_value("flush_all", "Partial", [&] { optim::flush_all({&opt}, odd<optim::Partial>()); });
  no_value("SGD", "StateMemory",
           [&] { const optim::SGD other({v}, {}, {.state_memory = odd<optim::StateMemory>()}); });
  no_value("LossScale", "HysteresisRefill",
           [] { optim::LossScale::dynamic({.refill = odd<optim::HysteresisRefill>()}); });
  no_value("LossScale", "OverflowPolicy",
           [] { optim::LossScale::dynamic({.on_overflow = odd<optim::OverflowPolicy>()}); });
  no_value("scaled_for_batch", "BatchScaling",
           [] { optim::scaled_for_batch(optim::cosine(1, 2), 2, odd<optim::BatchScaling>()); });
  no_value("Loader", "BadSample", [] {
    data::Loader loader(data::TensorDataset({zeros({4})}), {.bad_sample = odd<data::BadSample>()});
  });
  no_value("Checkpoints", "BestMetric", [] {
    io::Checkpoints never(std::filesystem::temp_directory_path() / "firn_no_such_metric",
                          {.best = odd<io::BestMetric>()});
  });
  no_value("all_reduce", "Reduce", [] {
    const dist::Group alone;
    alone.all_reduce(zeros({2}, alone.device()), odd<dist::Reduce>());
  });
  no_value("OwnerScope", "Owner", [] { const OwnerScope scope(odd<Owner>()); });
  CHECK(OwnerScope::current() == Owner::activations);
  no_value("MemoryReserve", "Owner",
           [] { const MemoryReserve reserve([] {}, Device::cpu(), odd<Owner>()); });
  no_value("RollbackPoint", "Rollback", [] { const RollbackPoint point({odd<Rollback>()}); });
  RollbackPoint point;
  no_value("RollbackPoint", "Rollback", [&] { point.roll_back(odd<Rollback>()); });
  Profile profile;
  profile.stop();
  no_value("Profile", "ProfileBy", [&] { profile.rows(odd<ProfileBy>()); });
  no_value("Profile", "ProfileBy", [&] { profile.table(odd<ProfileBy>()); });
}

TEST_CASE("names of numbers that an enum has not", "[ops]") {
  CHECK(std::string(to_string(odd<Activation>())) == "unknown activation");
  CHECK(std::string(to_string(odd<BagMode>())) == "unknown mode");
  CHECK(std::string(to_string(odd<PadMode>())) == "unknown mode");
  CHECK(std::string(to_string(odd<Upsampling>())) == "unknown upsampling");
  CHECK(std::string(to_string(odd<Interpolation>())) == "unknown interpolation");
  CHECK(std::string(to_string(odd<Owner>())) == "unknown owner");
  CHECK(gates_of(odd<RecurrentCell>()) == 0);
  CHECK(std::string(to_string(Activation::none)) == "none");
  CHECK(std::string(to_string(BagMode::max)) == "max");
  CHECK(std::string(to_string(PadMode::constant)) == "constant");
  CHECK(std::string(to_string(Upsampling::nearest)) == "nearest");
}

TEST_CASE("index_add: alpha may be infinite for floats, and is a whole number for integers",
          "[ops]") {
  const Tensor at = make({1}, {1}, i64);
  const auto sum = [&](DType dtype, double alpha) {
    return values_of(index_add(zeros({2}, dtype), 0, at, make({3}, {1}, dtype), alpha));
  };
  CHECK(sum(f32, INFINITY) == std::vector<double>{0, INFINITY});
  CHECK(std::isnan(sum(f64, std::nan(""))[1]));
  CHECK(sum(i64, -2) == std::vector<double>{0, -6});
  for (const double alpha : {0.5, 1.5, HUGE_VAL, std::nan("")})
    refused("index_add", {"does not fit i64"}, [&] { sum(i64, alpha); });
}

}  // namespace firn::testing
