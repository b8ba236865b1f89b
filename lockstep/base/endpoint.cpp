// Endpoint: the text forms of socket.h.
#include <fmt/core.h>
#include <sys/un.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"

namespace lockstep {
namespace {

constexpr std::size_t longest_name =
    sizeof(sockaddr_un::sun_path) - 1;  // the first byte is the abstract mark

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw_invalid_argument("endpoint \"" + text + "\": " + why +
                         "; write unix:@name, tcp:host:port or tcp:[v6 address]:port");
}

Endpoint parse_tcp(const std::string& text, const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos) refuse(text, "no port");
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (host.find_first_of("[]") != std::string::npos) refuse(text, "brackets within brackets");
  } else if (host.find_first_of(":[]") != std::string::npos) {
    refuse(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) refuse(text, "no host");
  if (host.find('\0') != std::string::npos) refuse(text, "a zero byte in the host's name");
  const auto number = env::parse_integer("endpoint \"" + text + "\": port", port, 0, 65535);
  return Endpoint::tcp(std::move(host), static_cast<std::uint16_t>(number));
}

}  // namespace

Endpoint Endpoint::parse(const std::string& text) {
  if (text.starts_with("unix:@")) return unix_abstract(text.substr(6));
  if (text.starts_with("tcp:")) return parse_tcp(text, text.substr(4));
  refuse(text, "unknown form");
}

Endpoint Endpoint::tcp(std::string host, std::uint16_t port) {
  return Endpoint{.kind = Kind::tcp, .host = std::move(host), .port = port};
}

Endpoint Endpoint::unix_abstract(std::string name) {
  if (name.empty()) refuse("unix:@", "no name");
  if (name.size() > longest_name) {
    refuse("unix:@" + name, fmt::format("the name has {} bytes, at most {} fit", name.size(), longest_name));
  }
  return Endpoint{.kind = Kind::unix_abstract, .host = std::move(name), .port = 0};
}

std::string Endpoint::to_string() const {
  if (kind == Kind::unix_abstract) return "unix:@" + host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("tcp:{}:{}", is_v6 ? "[" + host + "]" : host, port);
}

}  // namespace lockstep
