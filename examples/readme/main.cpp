// The program of the README, which quotes what is between the two marks.
// [readme]
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

int main() {
  auto world = lockstep::init();  // who am I: from the launcher; alone, a world of one
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(64, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 10));
  lockstep::DistributedDataParallel ddp(net, world);  // rank 0's parameters and buffers everywhere
  torch::optim::SGD sgd(net->parameters(), 0.01 * world.size());
  auto digits = lockstep::IdxDataset("digits/train").map(torch::data::transforms::Stack<>());
  auto loader =
      torch::data::make_data_loader(digits, lockstep::DistributedSampler(*digits.size(), world), 64);
  for (auto& batch : *loader) {
    sgd.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
    loss.backward();  // buckets are all-reduced while this runs
    sgd.step();
  }
  lockstep::save_checkpoint("model.ckpt", world, net, sgd);  // rank 0 writes, whole or not at all
}
// [readme]
