// A small GPT: it reads some characters and says, at each of them, how likely each character is to be next.
// After Radford et al.: Language Models are Unsupervised Multitask Learners (2019).
#pragma once

#include <torch/torch.h>

#include <cstdint>

struct TransformerShape {
  std::int64_t symbols = 0;  ///< kinds of characters
  std::int64_t layers = 2;
  std::int64_t heads = 2;
  std::int64_t width = 64;    ///< numbers that stand for a character, a multiple of `heads`
  std::int64_t context = 64;  ///< characters that it can look back to
};

/// Characters look at those before them, and then each at itself.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const TransformerShape& shape)
      : heads(shape.heads),
        norm1(torch::nn::LayerNormOptions({shape.width})),
        attention(shape.width, 3 * shape.width),
        projection(shape.width, shape.width),
        norm2(torch::nn::LayerNormOptions({shape.width})),
        up(shape.width, 4 * shape.width),
        down(4 * shape.width, shape.width) {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }

  torch::Tensor forward(torch::Tensor x) {  // x: [N, T, width]
    x = x + projection(look_back(norm1(x)));
    return x + down(torch::gelu(up(norm2(x))));
  }

  torch::Tensor look_back(const torch::Tensor& x) {
    const auto n = x.size(0), t = x.size(1), width = x.size(2);
    const auto parts = attention(x).view({n, t, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const auto seen = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                                          /*dropout_p=*/0.0, /*is_causal=*/true);
    return seen.transpose(1, 2).reshape({n, t, width});  // seen: [N, heads, T, width / heads]
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear attention, projection;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const TransformerShape& shape)
      : symbols(shape.symbols, shape.width),
        places(shape.context, shape.width),
        norm(torch::nn::LayerNormOptions({shape.width})) {
    register_module("symbols", symbols);
    register_module("places", places);
    for (std::int64_t i = 0; i < shape.layers; ++i) blocks->push_back(Block(shape));
    register_module("blocks", blocks);
    register_module("norm", norm);
    const torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
      if (item.value().dim() > 1) item.value().normal_(0, 0.06);
    }
  }

  torch::Tensor forward(const torch::Tensor& text) {  // [N, T] of symbols; to [N, T, symbols]
    auto x = symbols(text) + places(torch::arange(text.size(1), text.device()));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return torch::matmul(norm(x), symbols->weight.t());  // the same weights as at the entrance
  }

  torch::nn::Embedding symbols, places;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Transformer);
