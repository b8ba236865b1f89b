#include "lockstep/base/random_name.h"

#include "lockstep/base/secret.h"

namespace lockstep::base {

std::string random_name(std::size_t bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  const Secret source = Secret::random();
  std::string name;
  for (const std::byte byte : source.bytes().first(bytes)) {
    name += digits[std::to_integer<unsigned>(byte) >> 4U];
    name += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return name;
}

}  // namespace lockstep::base
