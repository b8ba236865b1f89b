#include "lockstep/data/fetch/checksum.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::fetch {

std::string checksum_of(int fd, const std::string& like, const std::string& name) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context(::EVP_MD_CTX_new(),
                                                                          &::EVP_MD_CTX_free);
  const EVP_MD* const kind = like.size() == 64 ? ::EVP_sha256() : ::EVP_md5();
  const auto require = [](int result) {
    if (result != 1) throw Error(ErrorCode::system, "checksums failed in libcrypto (does it allow MD5?)");
  };
  require(context ? ::EVP_DigestInit_ex(context.get(), kind, nullptr) : 0);
  std::vector<std::byte> block(std::size_t{1} << 20);
  for (off_t at = 0;;) {
    const auto got = ::pread(fd, block.data(), block.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system("reading " + name);
    if (got == 0) break;
    require(::EVP_DigestUpdate(context.get(), block.data(), static_cast<std::size_t>(got)));
    at += got;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned size = 0;
  require(::EVP_DigestFinal_ex(context.get(), sum.data(), &size));
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[sum.at(i) >> 4U];
    text += "0123456789abcdef"[sum.at(i) & 15U];
  }
  return text;
}

}  // namespace lockstep::fetch
