// Trains a small GPT to continue a text, character by character: each rank takes windows of its own from it, or all take the same and
// have parts of the model.
//
//   lockstep run -np 2 build/release/bin/char_transformer --text /usr/share/common-licenses/GPL-3
//   lockstep run -np 2 build/release/bin/char_transformer --text /usr/share/common-licenses/GPL-3 --spread pipeline
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <stdexcept>

#include "examples/support/run.h"
#include "spread.h"
#include "text.h"

namespace {

struct Options {
  std::string text;
  bool synthetic = false;
  TransformerShape shape;
  std::int64_t batch_size = 16;
  int steps = 300;
  double learning_rate = 3e-3;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
  SpreadOptions spread;
};

struct Windows {
  Windows to(torch::Device device) const { return {seen.to(device), next.to(device)}; }

  torch::Tensor seen, next;  // [windows, context]: what the model reads, and what comes one character later
};

Windows windows_at(const torch::Tensor& text, const torch::Tensor& begins, std::int64_t context) {
  const auto window = text.index({begins.unsqueeze(1) + torch::arange(context + 1)});
  return {window.narrow(1, 0, context), window.narrow(1, 1, context)};
}

/// From 0 up in the first tenth of the steps, then down along a cosine to a tenth of `most`.
double rate_at(int step, int steps, double most) {
  const double warm_up = std::max(1, steps / 10);
  if (step < warm_up) return most * (step + 1) / warm_up;
  const double done = (step - warm_up) / std::max(1.0, steps - warm_up);
  return most * (0.55 + 0.45 * std::cos(std::numbers::pi * done));
}

void train(const lockstep::Group& world, const Options& options, const Text& text, Spread& model) {
  torch::optim::AdamW adamw(model.parameters(),
                            torch::optim::AdamWOptions(options.learning_rate).weight_decay(0.1));
  lockstep::require_same_options(world, adamw);
  torch::manual_seed(options.random_seed + 1 + static_cast<std::uint64_t>(model.share()));
  const auto context = options.shape.context;
  model.train(true);
  for (int step = 0; step < options.steps; ++step) {
    for (auto& group : adamw.param_groups())
      group.options().set_lr(rate_at(step, options.steps, options.learning_rate));
    const auto begins = torch::randint(text.train.size(0) - context, {options.batch_size}, torch::kInt64);
    const auto [seen, next] = windows_at(text.train, begins, context).to(options.spread.device);
    adamw.zero_grad();
    const double loss = model.gradients(seen, next);
    adamw.step();
    model.stepped();
    if ((step + 1) % 100 == 0 && world.rank() == 0) {
      std::printf("step %d/%d  loss %.3f\n", step + 1, options.steps, loss);
      std::fflush(stdout);
    }
  }
}

/// Of every character of the validation text but the first, in nats. Each share has some of the windows that
/// lie one after the other; the last one may be short.
double validate(const lockstep::Group& world, const Options& options, const Text& text, Spread& model) {
  model.train(false);
  const torch::NoGradGuard no_grad;
  const std::int64_t context = options.shape.context, end = text.validation.size(0) - 1;
  double sum = 0;
  std::int64_t characters = 0;
  for (std::int64_t begin = context * model.share(); begin < end; begin += context * model.shares()) {
    const std::int64_t length = std::min(context, end - begin);
    const auto [seen, next] =
        windows_at(text.validation, torch::tensor({begin}), length).to(options.spread.device);
    sum += loss_of(model.scores(seen), next).item<double>() * static_cast<double>(length);
    characters += length;
  }
  const double mean = characters == 0 ? 0 : sum / static_cast<double>(characters);
  return lockstep::metric_average(world, mean, static_cast<std::size_t>(characters));
}

/// Some characters that the model likes after a line's end; the same on all ranks.
std::string write(const Options& options, const Text& text, Spread& model) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(options.random_seed);
  const auto line_end = text.symbols.find('\n');
  auto written = torch::full({1, 1}, static_cast<std::int64_t>(line_end == std::string::npos ? 0 : line_end));
  std::string sample;
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::max(std::int64_t{0}, written.size(1) - options.shape.context);
    const auto seen = written.narrow(1, begin, written.size(1) - begin).to(options.spread.device);
    const auto scores = model.scores(seen).select(1, -1).cpu();
    const auto next = torch::multinomial(torch::softmax(scores / 0.8, 1), 1);
    written = torch::cat({written, next}, 1);
    sample += text.symbols[static_cast<std::size_t>(next.item<std::int64_t>())];
  }
  return sample;
}

void run(Options options) {
  const auto world = lockstep::init();
  if (options.shape.width % options.shape.heads != 0)
    throw std::invalid_argument("--width has to be a multiple of --heads, whose shares of it are alike");
  if (options.spread.way == "diloco" && options.steps % options.spread.every != 0)
    throw std::invalid_argument(
        "--steps has to be a multiple of --every, since models differ between two averages");
  const auto [name, characters] = options.synthetic
                                      ? std::pair("made-up text", made_up_text(options.random_seed))
                                      : std::pair(options.text.c_str(), read_text(options.text));
  const Text text = encode(characters, name, options.shape.context);
  options.shape.symbols = static_cast<std::int64_t>(text.symbols.size());
  options.spread.device = lockstep::device_for(world, options.device);
  torch::manual_seed(options.random_seed);
  const auto model = spread(options.shape, world, options.spread);

  train(world, options, text, *model);
  const double loss = validate(world, options, text, *model);
  const std::string sample = write(options, text, *model);
  if (world.rank() != 0) return;
  std::printf("validation loss %.3f nats per character, of a bigram model %.3f\n", loss, bigram_loss(text));
  std::printf("it writes:\n%s\n", sample.c_str());
}

void add_flags(CLI::App& app, Options& options) {
  auto* const source = app.add_option_group("Text")->require_option(1);
  source->add_option("--text", options.text, "File to learn from");
  source->add_flag("--synthetic", options.synthetic, "Learn from sentences that are made up");
  const auto number = [&](const char* flag, auto& value, const char* what) {
    app.add_option(flag, value, what)->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  };
  number("--layers", options.shape.layers, "Blocks of attention and perceptron");
  number("--heads", options.shape.heads, "Of each attention");
  number("--width", options.shape.width, "Numbers that stand for a character; a multiple of --heads");
  number("--context", options.shape.context, "Characters that the model can look back to");
  number("--batch_size", options.batch_size, "Windows per process and step");
  number("--steps", options.steps, "Steps of the optimizer");
  app.add_option("--learning_rate", options.learning_rate, "The highest, after the first tenth of the steps")
      ->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For weights, windows and what it writes")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option(
         "--spread", options.spread.way,
         "What ranks have: all of the model (with averaged gradients, or now and then an averaged model), "
         "parts of its layers, or some layers")
      ->check(CLI::IsMember({"data", "diloco", "tensor", "pipeline"}))
      ->capture_default_str();
  number("--every", options.spread.every,
         "Steps between two averages of diloco; --steps is a multiple of it");
  number("--micro_batches", options.spread.micro_batches, "Of a batch in a pipeline");
  examples::add_device_flag(app, options.device);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small GPT on the characters of a text, and compares it with a bigram model.");
  add_flags(app, options);
  return examples::run(app, argc, argv, [&] { run(options); });
}
