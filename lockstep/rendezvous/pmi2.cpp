#include "lockstep/rendezvous/pmi2.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using base::quote;

constexpr std::size_t length_digits = 6;

/// Blanks stand before the number, or after it.
std::size_t message_bytes(const std::string& digits, const std::string& request) {
  const std::size_t begin = std::min(digits.find_first_not_of(' '), digits.size());
  const std::size_t end = digits.find_last_not_of(' ') + 1;
  std::size_t bytes = 0;
  const auto [read, problem] = std::from_chars(digits.data() + begin, digits.data() + end, bytes);
  if (problem != std::errc() || read != digits.data() + end || bytes > Pmi2::most_message_bytes)
    PmiSocket::fail(ErrorCode::corrupt_data, request,
                    "the launcher's answer has the length " + quote(digits));
  return bytes;
}

}  // namespace

std::map<std::string, std::string> parse_pmi2(const std::string& message) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::corrupt_data, "PMI-2: the launcher answers " + quote(message) + ", which " + why);
  };
  if (message.size() > Pmi2::most_message_bytes) refuse("is too long");
  if (!std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; })) refuse("is no text");
  std::map<std::string, std::string> fields;
  for (std::string_view rest = message; !rest.empty();) {
    const std::size_t end = rest.find(';'), equals = rest.find('=');
    if (end == std::string_view::npos || equals == 0 || equals > end)
      refuse("is not made of names and values");
    if (!fields.emplace(rest.substr(0, equals), rest.substr(equals + 1, end - equals - 1)).second)
      refuse("says something twice");
    rest.remove_prefix(end + 1);
  }
  if (!fields.contains("cmd")) refuse("has no cmd");
  return fields;
}

Pmi2::Pmi2(int fd, std::string job, bool is_begun) : socket_(fd), job_(std::move(job)), is_begun_(is_begun) {}

std::string Pmi2::job(Deadline) {
  require_job_name(job_, "PMI_JOBID");
  return job_;
}

// In the words of PMI-1, which all versions understand.
void Pmi2::begin(Deadline deadline) {
  if (is_begun_) return;
  const std::string request = "cmd=init pmi_version=2 pmi_subversion=0";
  socket_.send(request, request + "\n", deadline);
  const std::string answer = socket_.receive_line(request, most_message_bytes, deadline);
  if (!answer.starts_with("cmd=response_to_init") || answer.find("rc=0") == std::string::npos)
    PmiSocket::fail(ErrorCode::corrupt_data, request, "the launcher answers " + quote(answer));
  is_begun_ = true;
}

void Pmi2::put(const std::string& key, const std::string& value, Deadline deadline) {
  (void)ask(fmt::format("cmd=kvs-put;key={};value={};", key, value), "kvs-put", deadline);
}

void Pmi2::fence(Deadline deadline) { (void)ask("cmd=kvs-fence;", "kvs-fence", deadline); }

std::string Pmi2::get(const std::string& key, Deadline deadline) {
  const Answer answer =
      ask(fmt::format("cmd=kvs-get;jobid={};srcid=-1;key={};", job_, key), "kvs-get", deadline);
  const auto found = answer.find("found"), value = answer.find("value");
  if (value == answer.end() || (found != answer.end() && found->second != "TRUE"))
    PmiSocket::fail(ErrorCode::mismatch, "cmd=kvs-get", "no rank has put " + quote(key));
  return value->second;
}

Pmi2::Answer Pmi2::ask(const std::string& request, const std::string& name, Deadline deadline) {
  begin(deadline);
  socket_.send(request, fmt::format("{:6}{}", request.size(), request), deadline);
  const std::size_t bytes = message_bytes(socket_.receive(request, length_digits, deadline), request);
  Answer answer = parse_pmi2(socket_.receive(request, bytes, deadline));
  if (answer["cmd"] != name + "-response")
    PmiSocket::fail(ErrorCode::corrupt_data, request,
                    "the launcher answers " + quote(answer["cmd"]) + " instead of " + name + "-response");
  if (const auto rc = answer.find("rc"); rc != answer.end() && rc->second != "0")
    PmiSocket::fail(ErrorCode::system, request,
                    fmt::format("the launcher does not do it (rc={})", rc->second));
  return answer;
}

}  // namespace lockstep
