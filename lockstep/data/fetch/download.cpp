#include "lockstep/data/fetch/download.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/write.h"
#include "lockstep/data/fetch/curl_library.h"

namespace lockstep::fetch {
namespace {

using base::quote;

constexpr long most_redirects = 5;
constexpr std::chrono::milliseconds between_reports{200};

/// Without the user and password that an address may have before its host.
std::string shown(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  const std::size_t at = url.rfind('@', url.find('/', host));
  return at == std::string::npos || at < host ? url : url.substr(0, host) + url.substr(at + 1);
}

/// "bytes 100-199/200": 100. nullopt where it makes no sense.
std::optional<std::uint64_t> start_of(std::string_view range) {
  constexpr std::string_view unit = "bytes ";
  if (!range.starts_with(unit)) return std::nullopt;
  std::uint64_t start = 0;
  const auto parsed = std::from_chars(range.data() + unit.size(), range.data() + range.size(), start);
  if (parsed.ec != std::errc() || parsed.ptr == range.data() + range.size() || *parsed.ptr != '-')
    return std::nullopt;
  return start;
}

/// One connection.
class Attempt {
 public:
  Attempt(const std::string& url, const PartFile& part, const DownloadOptions& options)
      : url_(url), part_(part), options_(options), have_(part.size()), began_at_(have_) {}
  ~Attempt() {
    if (handle_ != nullptr) curl_.easy_cleanup(handle_);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// Throws what cannot be mended by another attempt. True: the file is whole.
  bool run();
  /// Why run() returned false.
  const Error& failure() const { return *failure_; }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    if (curl_.easy_setopt(handle_, option, value) != CURLE_OK)
      throw Error(ErrorCode::system, "libcurl does not take option " + std::to_string(option));
  }
  void configure();
  void set_protocols();
  bool judge(CURLcode result);
  std::string reason(CURLcode result) const;
  long answer() const;
  void begin_body();
  std::size_t take(std::span<const std::byte> bytes);
  void take_header(std::string_view line);
  void report(std::uint64_t coming);

  static std::size_t on_body(const char* data, std::size_t, std::size_t bytes, void* self) {
    return static_cast<Attempt*>(self)->take(std::as_bytes(std::span(data, bytes)));
  }
  static std::size_t on_header(const char* data, std::size_t, std::size_t bytes, void* self) {
    static_cast<Attempt*>(self)->take_header({data, bytes});
    return bytes;
  }
  static int on_progress(void* self, curl_off_t total, curl_off_t, curl_off_t, curl_off_t) {
    auto* const attempt = static_cast<Attempt*>(self);
    attempt->report(static_cast<std::uint64_t>(std::max<curl_off_t>(total, 0)));
    return attempt->thrown_ ? 1 : 0;
  }

  const CurlLibrary& curl_ = CurlLibrary::get();
  const std::string& url_;
  const PartFile& part_;
  const DownloadOptions& options_;
  std::uint64_t have_;
  std::uint64_t began_at_;
  CURL* handle_ = nullptr;
  std::string range_;
  std::string content_range_;
  std::array<char, CURL_ERROR_SIZE> words_{};
  std::chrono::steady_clock::time_point reported_{};
  bool has_begun_ = false;     // the body
  std::exception_ptr thrown_;  // in a callback
  std::optional<Error> failure_;
};

void Attempt::set_protocols() {
  const bool is_secure = url_.starts_with("https:");
#if LIBCURL_VERSION_NUM >= 0x075500
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, is_secure ? "https" : "http,https");
#else
  const long secure = CURLPROTO_HTTPS;
  set(CURLOPT_PROTOCOLS, secure | CURLPROTO_HTTP);
  set(CURLOPT_REDIR_PROTOCOLS, is_secure ? secure : secure | CURLPROTO_HTTP);
#endif
}

void Attempt::configure() {
  handle_ = curl_.easy_init();
  if (handle_ == nullptr) throw Error(ErrorCode::system, "libcurl has no memory");
  set(CURLOPT_URL, url_.c_str());
  set(CURLOPT_USERAGENT, "lockstep/" LOCKSTEP_VERSION);
  set_protocols();
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, most_redirects);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, words_.data());
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  const auto stall = std::chrono::ceil<std::chrono::seconds>(options_.stall_timeout);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall.count()));
  set(CURLOPT_TIMEOUT_MS,
      static_cast<long>(std::max(1, options_.deadline.poll_milliseconds(std::chrono::hours(24)))));
  set(CURLOPT_WRITEFUNCTION, &Attempt::on_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_HEADERFUNCTION, &Attempt::on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_XFERINFOFUNCTION, &Attempt::on_progress);
  set(CURLOPT_XFERINFODATA, this);
  set(CURLOPT_NOPROGRESS, 0L);
  if (have_ == 0) return;
  range_ = std::to_string(have_) + "-";
  set(CURLOPT_RANGE, range_.c_str());
}

long Attempt::answer() const {
  long code = 0;
  (void)curl_.easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &code);
  return code;
}

void Attempt::take_header(std::string_view line) {
  constexpr std::string_view name = "content-range:";
  if (line.starts_with("HTTP/")) content_range_.clear();  // of another answer: there may be redirects
  if (line.size() < name.size() ||
      !std::equal(name.begin(), name.end(), line.begin(), [](char one, char other) {
        return one == (other >= 'A' && other <= 'Z' ? other - 'A' + 'a' : other);
      }))
    return;
  line.remove_prefix(name.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  content_range_ = line.substr(0, line.find_first_of("\r\n"));
}

/// Where the body goes: behind what is there, if that is what the server sends.
void Attempt::begin_body() {
  if (have_ > 0 && answer() == 206 && start_of(content_range_) != have_) {
    part_.clear();
    throw Error(ErrorCode::corrupt_data, "the server was asked for the bytes from " + std::to_string(have_) +
                                             " on, and answers " + quote(content_range_) +
                                             "; the next call begins anew");
  }
  if (have_ == 0 || answer() == 206) return;
  part_.clear();
  have_ = began_at_ = 0;
}

std::size_t Attempt::take(std::span<const std::byte> bytes) {
  try {
    if (!has_begun_) begin_body();
    has_begun_ = true;
    if (bytes.size() > options_.most_bytes || have_ > options_.most_bytes - bytes.size()) {
      throw Error(ErrorCode::corrupt_data, "the file has more than the " +
                                               std::to_string(options_.most_bytes) +
                                               " bytes that it may have: this is not what was published");
    }
    if (const int error_number = write_all(part_.fd(), bytes); error_number != 0)
      throw_system("cannot write " + part_.path().string(), error_number);
    have_ += bytes.size();
    return bytes.size();
  } catch (...) {
    thrown_ = std::current_exception();
    return 0;
  }
}

void Attempt::report(std::uint64_t coming) {
  const auto now = std::chrono::steady_clock::now();
  if (!has_begun_ || !options_.progress || now - reported_ < between_reports) return;
  reported_ = now;
  try {
    options_.progress(have_, coming == 0 ? 0 : began_at_ + coming);
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

std::string Attempt::reason(CURLcode result) const {
  return words_[0] != '\0' ? words_.data() : curl_.easy_strerror(result);
}

/// What another attempt may mend is failure_; the rest is thrown.
bool Attempt::judge(CURLcode result) {
  const std::string where = shown(url_) + ": ";
  const long code = answer();
  if (result == CURLE_OK) return true;
  if (result == CURLE_HTTP_RETURNED_ERROR && code == 416 && have_ > 0) {
    // Nothing is behind what is there: all of it is, or the file is another now. The checksum tells.
    return true;
  }
  if (options_.deadline.expired())
    throw Error(ErrorCode::timeout, where + "the time is over; what has come stays for the next attempt");
  if (result == CURLE_HTTP_RETURNED_ERROR && code < 500) {
    throw Error(ErrorCode::system, where + "the server answers " + std::to_string(code) +
                                       (code == 404 ? " (there is no such file)" : ""));
  }
  if (result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_URL_MALFORMAT ||
      result == CURLE_TOO_MANY_REDIRECTS || result == CURLE_PEER_FAILED_VERIFICATION) {
    throw Error(ErrorCode::system, where + reason(result));
  }
  const ErrorCode kind = result == CURLE_OPERATION_TIMEDOUT ? ErrorCode::timeout : ErrorCode::system;
  failure_.emplace(kind, where + reason(result));
  return false;
}

bool Attempt::run() {
  configure();
  const CURLcode result = curl_.easy_perform(handle_);
  if (thrown_) {
    try {
      std::rethrow_exception(thrown_);
    } catch (const Error& error) {
      throw Error(error.code(), shown(url_) + ": " + error.what());
    }
  }
  return judge(result);
}

}  // namespace

void download(const std::string& url, const PartFile& part, const DownloadOptions& options) {
  std::uint64_t most = part.size();
  for (int in_vain = 0;;) {
    Attempt attempt(url, part, options);
    if (attempt.run()) return;
    const std::uint64_t have = part.size();
    in_vain = have > most ? 0 : in_vain + 1;
    most = std::max(most, have);
    if (in_vain >= options.attempts) throw Error(attempt.failure());
    const Deadline::Clock::duration pause = in_vain > 0 ? options.pause : std::chrono::milliseconds(0);
    std::this_thread::sleep_for(std::min(pause, options.deadline.remaining()));
    if (options.deadline.expired())
      throw Error(ErrorCode::timeout, std::string(attempt.failure().what()) + "; the time is over");
  }
}

}  // namespace lockstep::fetch
