// Which hosts a job has and which rank a process is, as users, batch systems and launchers of others say it.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/group/tf_config.h"
#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/hosts/node_list.h"
#include "lockstep/rendezvous/pmi1.h"
#include "lockstep/rendezvous/pmi2.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::hosts {
namespace {

constexpr const char* what = "HOSTS";

void require_sound(const std::vector<launch::Host>& hosts) {
  require(!hosts.empty() && hosts.size() <= launch::most_hosts, "there are hosts, and not too many");
  int total = 0;
  for (const launch::Host& host : hosts) {
    require(!host.name.empty() && host.name.front() != '-', "no name is an option of ssh");
    require(host.name.find_first_of(" \t\n;$`'\"\\|&<>()*?") == std::string::npos,
            "no name means anything to a shell");
    require(host.slots >= 1, "each takes a rank");
    total += host.slots;
  }
  require(total <= launch::most_slots, "there are not too many slots");
  require(launch::share_out(total, hosts) == hosts, "all slots can be taken");
}

void host_list(const std::string& text) {
  const auto hosts = launch::parse_host_list(text, what);
  require_sound(hosts);
  std::string written = launch::to_string(hosts);
  std::erase(written, ' ');
  require(launch::parse_host_list(written, what) == hosts, "what was read can be written and read again");
}

void discovered(const std::string& text) {
  auto hosts = launch::parse_discovered(text, what, 1);
  std::erase_if(hosts, [](const launch::Host& host) { return host.slots == 0; });
  if (!hosts.empty()) require_sound(hosts);
}

void hostfile(const std::string& text) { require_sound(launch::parse_hostfile(text, what)); }

void node_list(const std::string& text) {
  const auto hosts = launch::parse_node_list(text, what);
  require(!hosts.empty() && hosts.size() <= launch::most_hosts, "there are hosts, and not too many");
  require(std::ranges::none_of(hosts, &std::string::empty), "each has a name");
}

void counts(const std::string& text) {
  require(launch::parse_counts(text, what).size() <= launch::most_hosts, "there are not too many");
}

void tf_config(const std::string& text) {
  const TfConfig config = parse_tf_config(text);
  require(config.size >= 1 && config.rank >= 0 && config.rank < config.size, "a rank is one of its world");
  require(config.size == 1 || !config.host.empty(), "a world has a place to meet");
}

void pmi(const std::string& text) {
  const auto answer = parse_pmi1(text);
  require(answer.contains("cmd"), "an answer is to something");
}

void pmi2(const std::string& text) { require(parse_pmi2(text).contains("cmd"), "an answer is to something"); }

}  // namespace

int run_one(Input input) {
  constexpr void (*parsers[])(const std::string&) = {host_list, hostfile, node_list, counts,
                                                     tf_config, pmi,      pmi2,      discovered};
  Script script(input);
  const int which = script.below(8);
  try {
    parsers[which](script.text(input.size()));
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_tf_config = parsers[which] == tf_config,
               is_pmi = parsers[which] == pmi || parsers[which] == pmi2;
    const ErrorCode code = is_pmi ? ErrorCode::corrupt_data : ErrorCode::invalid_argument;
    require(error.code() == code || (is_tf_config && error.code() == ErrorCode::unsupported),
            "a wrong text is an invalid argument");
    require(text.starts_with(is_tf_config ? "TF_CONFIG" : is_pmi ? "PMI" : what), "which is named");
    require(text.find('\n') == std::string::npos, "in one line");
  }
  return 0;
}

}  // namespace lockstep::fuzz::hosts
