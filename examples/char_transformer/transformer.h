// A small GPT: it reads some characters and says, at each of them, how likely each character is to be next.
// After Radford et al.: Language Models are Unsupervised Multitask Learners (2019).
#pragma once

#include <lockstep/train.h>
#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

struct TransformerShape {
  std::int64_t symbols = 0;  ///< kinds of characters
  std::int64_t layers = 2;
  std::int64_t heads = 2;
  std::int64_t width = 64;    ///< numbers that stand for a character, a multiple of `heads`
  std::int64_t context = 64;  ///< characters that it can look back to
};

/// Over `group`, if there is one, lie the columns of a layer that widens, and the rows of one that narrows: the two cost one sum.
inline torch::nn::AnyModule widening(std::int64_t in, std::int64_t out,
                                     const std::optional<lockstep::Group>& group) {
  if (group) return torch::nn::AnyModule(lockstep::ColumnParallelLinear(in, out, *group));
  return torch::nn::AnyModule(torch::nn::Linear(in, out));
}
inline torch::nn::AnyModule narrowing(std::int64_t in, std::int64_t out,
                                      const std::optional<lockstep::Group>& group) {
  if (group) return torch::nn::AnyModule(lockstep::RowParallelLinear(in, out, *group));
  return torch::nn::AnyModule(torch::nn::Linear(in, out));
}

/// Characters look at those before them, and then each at itself. Each rank of `group` has some of the heads.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const TransformerShape& shape, const std::optional<lockstep::Group>& group = {})
      : heads(shape.heads / (group ? group->size() : 1)),
        norm1(torch::nn::LayerNormOptions({shape.width})),
        attention(widening(shape.width, 3 * shape.width, group)),
        projection(narrowing(shape.width, shape.width, group)),
        norm2(torch::nn::LayerNormOptions({shape.width})),
        up(widening(shape.width, 4 * shape.width, group)),
        down(narrowing(4 * shape.width, shape.width, group)) {
    register_module("norm1", norm1);
    register_module("attention", attention.ptr());
    register_module("projection", projection.ptr());
    register_module("norm2", norm2);
    register_module("up", up.ptr());
    register_module("down", down.ptr());
  }

  torch::Tensor forward(torch::Tensor x) {  // x: [N, T, width]
    x = x + projection.forward(look_back(norm1(x)));
    return x + down.forward(torch::gelu(up.forward(norm2(x))));
  }

  torch::Tensor look_back(const torch::Tensor& x) {
    const auto n = x.size(0), t = x.size(1);
    // Head after head, each with what it asks, is asked for and says: so the ranks' columns are whole heads.
    const auto parts = attention.forward(x).view({n, t, heads, 3, -1}).permute({3, 0, 2, 1, 4});
    const auto seen = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                                          /*dropout_p=*/0.0, /*is_causal=*/true);
    return seen.transpose(1, 2).reshape({n, t, -1});  // seen: [N, heads, T, width of one]
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::AnyModule attention, projection;
  torch::nn::LayerNorm norm2;
  torch::nn::AnyModule up, down;
};
TORCH_MODULE(Block);

inline torch::nn::Embedding embedding(std::int64_t count, std::int64_t width) {
  torch::nn::Embedding made(count, width);
  const torch::NoGradGuard no_grad;
  made->weight.normal_(0, 0.06);
  return made;
}

/// Numbers for characters and where they stand.
struct EntranceImpl : torch::nn::Module {
  explicit EntranceImpl(const TransformerShape& shape)
      : symbols(register_module("symbols", embedding(shape.symbols, shape.width))),
        places(register_module("places", embedding(shape.context, shape.width))) {}

  torch::Tensor forward(const torch::Tensor& text) {  // [N, T] of symbols; to [N, T, width]
    return symbols(text) + places(torch::arange(text.size(1), text.device()));
  }

  torch::nn::Embedding symbols, places;
};
TORCH_MODULE(Entrance);

/// How likely each symbol is, by the entrance's own weights.
struct ExitImpl : torch::nn::Module {
  /// Somewhere else than the entrance: a pipeline keeps both weights the same.
  explicit ExitImpl(const TransformerShape& shape) : ExitImpl(shape, embedding(shape.symbols, shape.width)) {
    register_module("symbols", symbols);
  }
  ExitImpl(const TransformerShape& shape, torch::nn::Embedding of_entrance)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})))),
        symbols(std::move(of_entrance)) {}

  torch::Tensor forward(const torch::Tensor& x) {  // [N, T, width]; to [N, T, symbols]
    return torch::matmul(norm(x), symbols->weight.t());
  }

  torch::nn::LayerNorm norm;
  torch::nn::Embedding symbols;
};
TORCH_MODULE(Exit);

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const TransformerShape& shape, const std::optional<lockstep::Group>& group = {})
      : entrance(register_module("entrance", Entrance(shape))),
        exit(register_module("exit", Exit(shape, entrance->symbols))) {
    for (std::int64_t i = 0; i < shape.layers; ++i) blocks->push_back(Block(shape, group));
    register_module("blocks", blocks);
  }

  torch::Tensor forward(const torch::Tensor& text) {  // [N, T] of symbols; to [N, T, symbols]
    auto x = entrance(text);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return exit(x);
  }

  Entrance entrance;
  torch::nn::ModuleList blocks;
  Exit exit;
};
TORCH_MODULE(Transformer);

/// The same layers, for a pipeline.
inline lockstep::Layers transformer_layers(const TransformerShape& shape) {
  lockstep::Layers layers;
  layers.add_named<Entrance>("entrance", shape);
  for (std::int64_t i = 0; i < shape.layers; ++i)
    layers.add_named("block" + std::to_string(i), [shape] { return Block(shape); });
  layers.add_named<Exit>("exit", shape);
  layers.tie("entrance.symbols.weight", "exit.symbols.weight");
  return layers;
}
