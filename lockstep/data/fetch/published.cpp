// From where the sums are: MNIST's and Fashion-MNIST's as torchvision and Fashion-MNIST's README list them,
// CIFAR-10's from its page. See docs/data.md.
#include "lockstep/data/fetch/published.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using base::quote;

using fetch::Published;
using fetch::PublishedSet;

constexpr std::array<std::pair<PublicDataset, const char*>, 3> names = {
    {{PublicDataset::mnist, "mnist"},
     {PublicDataset::fashion_mnist, "fashion-mnist"},
     {PublicDataset::cifar10, "cifar10"}}};

Published gz(const std::string& name, const std::string& md5, std::uint64_t bytes) {
  return {.name = name + ".gz", .checksum = md5, .files = {{.name = name, .member = "", .bytes = bytes}}};
}

/// 60,000 and 10,000 images of 28 x 28 bytes with their labels.
std::vector<Published> idx_files(const std::array<const char*, 4>& md5) {
  return {gz("train-images-idx3-ubyte", md5[0], 16 + 60'000 * 784),
          gz("train-labels-idx1-ubyte", md5[1], 8 + 60'000),
          gz("t10k-images-idx3-ubyte", md5[2], 16 + 10'000 * 784),
          gz("t10k-labels-idx1-ubyte", md5[3], 8 + 10'000)};
}

PublishedSet cifar10() {
  Published archive{
      .name = "cifar-10-binary.tar.gz", .checksum = "c32a1d4ab5d03f1284b67883e8d87530", .files = {}};
  for (const char* const name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                 "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    archive.files.push_back(
        {.name = name, .member = std::string("cifar-10-batches-bin/") + name, .bytes = 10'000 * 3073});
  }
  return {.title = "CIFAR-10", .urls = {"https://www.cs.toronto.edu/~kriz/"}, .files = {archive}};
}

PublishedSet as_published(PublicDataset set) {
  switch (set) {
    case PublicDataset::mnist:
      return {.title = "MNIST",
              .urls = {"https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"},
              .files = idx_files({"f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                                  "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"})};
    case PublicDataset::fashion_mnist:
      return {.title = "Fashion-MNIST",
              .urls = {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"},
              .files = idx_files({"8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                                  "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"})};
    case PublicDataset::cifar10: return cifar10();
  }
  throw_invalid_argument("there is no such data set");
}

void require_folder(const std::string& url) {
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    throw_invalid_argument("the address " + quote(url) + " must begin with http:// or https://");
  if (url.find_first_of("?#") != std::string::npos)
    throw_invalid_argument("the address " + quote(url) + " must be a folder, without ? and #");
}

void require_checksum(const std::string& file, const std::string& sum) {
  const bool is_hex = sum.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hex || (sum.size() != 32 && sum.size() != 64)) {
    throw_invalid_argument("the checksum of " + file + " is " + quote(sum) +
                           "; it must be an MD5 (32 digits of 0-9a-f) or a SHA-256 (64)");
  }
}

}  // namespace

std::string to_string(PublicDataset set) {
  for (const auto& [one, name] : names) {
    if (one == set) return name;
  }
  return "unknown data set";
}

PublicDataset parse_public_dataset(const std::string& name) {
  for (const auto& [set, known] : names) {
    if (name == known) return set;
  }
  throw_invalid_argument("there is no data set " + quote(name) + "; there are mnist, fashion-mnist, cifar10");
}

fetch::PublishedSet fetch::published(PublicDataset set, const FetchOptions& options) {
  PublishedSet found = as_published(set);
  if (!options.url.empty()) {
    require_folder(options.url);
    found.urls = {options.url.ends_with('/') ? options.url : options.url + "/"};
  }
  for (const auto& [name, sum] : options.checksums) {
    require_checksum(name, sum);
    const auto file = std::ranges::find(found.files, name, &Published::name);
    if (file == found.files.end()) {
      std::string known;
      for (const Published& one : found.files) known += (known.empty() ? "" : ", ") + one.name;
      throw_invalid_argument("a checksum is given for " + quote(name) + ", but " + found.title +
                             " has the files " + known);
    }
    file->checksum = sum;
    file->is_the_publishers = false;
  }
  return found;
}

}  // namespace lockstep
