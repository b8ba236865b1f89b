#include "spread.h"

#include <stdexcept>

namespace {

constexpr double most_norm = 1;

Transformer transformer_on(torch::Device device, const TransformerShape& shape) {
  Transformer model(shape);
  model->to(device);
  return model;
}

/// Each rank has all of the model, and windows of its own; gradients are averaged.
class DataSpread final : public Spread {
 public:
  DataSpread(const TransformerShape& shape, const lockstep::Group& world, torch::Device device)
      : world_(world),
        ddp_(transformer_on(device, shape), world, {.non_finite = lockstep::NonFinite::stop}) {}

  std::vector<torch::Tensor> parameters() const override { return ddp_.parameters(); }
  void train(bool on) override { ddp_.module()->train(on); }
  int shares() const override { return world_.size(); }
  int share() const override { return world_.rank(); }

  double gradients(const torch::Tensor& seen, const torch::Tensor& next) override {
    const auto loss = loss_of(ddp_(seen), next);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(ddp_.parameters(), most_norm);
    return loss.item<double>();
  }
  torch::Tensor scores(const torch::Tensor& seen) override { return ddp_(seen); }

 private:
  lockstep::Group world_;
  lockstep::DistributedDataParallel<TransformerImpl> ddp_;
};

/// Each rank trains a model of its own, with windows of its own; every now and then what they have learned moves a common one.
class DilocoSpread final : public Spread {
 public:
  DilocoSpread(const TransformerShape& shape, const lockstep::Group& world, const SpreadOptions& options)
      : world_(world),
        model_(transformer_on(options.device, shape)),
        outer_(model_, world, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true),
               {.every = options.every, .non_finite = lockstep::NonFinite::stop}) {}

  std::vector<torch::Tensor> parameters() const override { return model_->parameters(); }
  void train(bool on) override { model_->train(on); }
  int shares() const override { return world_.size(); }
  int share() const override { return world_.rank(); }

  double gradients(const torch::Tensor& seen, const torch::Tensor& next) override {
    const auto loss = loss_of(model_(seen), next);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model_->parameters(), most_norm);
    return loss.item<double>();
  }
  void stepped() override { outer_.step(); }
  torch::Tensor scores(const torch::Tensor& seen) override { return model_(seen); }

 private:
  lockstep::Group world_;
  Transformer model_;
  lockstep::DiLoCo outer_;
};

/// Each rank has some heads of each attention, and some columns and rows of each perceptron; all see the same windows.
class TensorSpread final : public Spread {
 public:
  TensorSpread(const TransformerShape& shape, const lockstep::Group& world, torch::Device device)
      : world_(world) {
    if (shape.heads % world.size() != 0)
      throw std::invalid_argument("--heads has to be a multiple of the number of ranks with --spread tensor");
    model_ = Transformer(shape, world);
    model_->to(device);
  }

  std::vector<torch::Tensor> parameters() const override { return model_->parameters(); }
  void train(bool on) override { model_->train(on); }
  int shares() const override { return 1; }
  int share() const override { return 0; }

  double gradients(const torch::Tensor& seen, const torch::Tensor& next) override {
    const auto loss = loss_of(model_(seen), next);
    loss.backward();
    lockstep::clip_grad_norm(world_, model_, most_norm);
    return loss.item<double>();
  }
  torch::Tensor scores(const torch::Tensor& seen) override { return model_(seen); }

 private:
  lockstep::Group world_;
  Transformer model_{nullptr};
};

/// Each rank has some of the layers; all see the same windows, in parts that follow each other.
class PipelineSpread final : public Spread {
 public:
  PipelineSpread(const TransformerShape& shape, const lockstep::Group& world, const SpreadOptions& options)
      : world_(world),
        symbols_(shape.symbols),
        device_(options.device),
        pipe_(transformer_layers(shape), world,
              {.micro_batches = options.micro_batches,
               .non_finite = lockstep::NonFinite::stop,
               .device = options.device}) {}

  std::vector<torch::Tensor> parameters() const override { return pipe_.parameters(); }
  void train(bool on) override { pipe_.train(on); }
  int shares() const override { return 1; }
  int share() const override { return 0; }

  double gradients(const torch::Tensor& seen, const torch::Tensor& next) override {
    const double loss = pipe_.step(seen, next, loss_of);
    pipe_.clip_grad_norm(most_norm);
    return loss;
  }
  torch::Tensor scores(const torch::Tensor& seen) override {
    const auto made = pipe_.evaluate(seen);  // on the last rank
    const auto all =
        made.defined() ? made.contiguous() : torch::empty({seen.size(0), seen.size(1), symbols_}, device_);
    lockstep::broadcast(world_, all, world_.size() - 1).wait();
    return all;
  }

 private:
  lockstep::Group world_;
  std::int64_t symbols_;
  torch::Device device_;
  lockstep::Pipeline pipe_;
};

}  // namespace

std::unique_ptr<Spread> spread(const TransformerShape& shape, const lockstep::Group& world,
                               const SpreadOptions& options) {
  if (options.way == "data") return std::make_unique<DataSpread>(shape, world, options.device);
  if (options.way == "diloco") return std::make_unique<DilocoSpread>(shape, world, options);
  if (options.way == "tensor") return std::make_unique<TensorSpread>(shape, world, options.device);
  return std::make_unique<PipelineSpread>(shape, world, options);
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& next) {
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), next.flatten());
}
