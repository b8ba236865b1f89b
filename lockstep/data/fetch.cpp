#include "lockstep/data/fetch.h"

#include <algorithm>
#include <exception>
#include <system_error>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/data/fetch/checksum.h"
#include "lockstep/data/fetch/download.h"
#include "lockstep/data/fetch/part_file.h"
#include "lockstep/data/fetch/published.h"
#include "lockstep/data/fetch/unpack.h"
#include "lockstep/group/earlier_deadline.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/once_per_host.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using fetch::PartFile;
using fetch::Published;
using fetch::PublishedSet;
using fetch::Unpacked;

/// One call of fetch_dataset().
class Fetching {
 public:
  Fetching(PublishedSet set, fs::path folder, const FetchOptions& options)
      : set_(std::move(set)),
        folder_(std::move(folder)),
        options_(options),
        deadline_(Deadline::after(options.timeout)) {}

  void run() {
    make_folder();
    for (const Published& file : set_.files) {
      if (is_there(file)) {
        say({.state = FetchProgress::State::already_there, .file = file.name});
      } else {
        get(file);
      }
    }
  }

 private:
  void say(const FetchProgress& progress) const {
    if (options_.progress) options_.progress(progress);
  }
  void make_folder() const;
  bool is_there(const Published& file) const;
  void get(const Published& file) const;
  void complete(const Published& file, PartFile& part) const;
  void download(const Published& file, const PartFile& part) const;
  std::string complaint(const Published& file, const PartFile& part) const;

  PublishedSet set_;
  fs::path folder_;
  const FetchOptions& options_;
  Deadline deadline_;
};

void Fetching::make_folder() const {
  std::error_code problem;
  fs::create_directories(folder_, problem);
  if (problem || !fs::is_directory(folder_, problem)) {
    throw Error(ErrorCode::system, "cannot make the folder " + folder_.string() +
                                       (problem ? ": " + problem.message() : ": a file is there"));
  }
}

/// Whether all that comes out of `file` is. Throws Error{invalid_argument} for a file of such a name that is
/// another.
bool Fetching::is_there(const Published& file) const {
  return std::ranges::all_of(file.files, [&](const Unpacked& one) {
    const fs::path path = folder_ / one.name;
    std::error_code problem;
    const auto bytes = fs::file_size(path, problem);
    if (problem) return false;
    if (file.is_the_publishers && bytes != one.bytes) {
      throw_invalid_argument(path.string() + " is there with " + std::to_string(bytes) + " bytes, and " +
                             set_.title + "'s has " + std::to_string(one.bytes) +
                             ": it is another file; remove it, or fetch into another folder");
    }
    return true;
  });
}

void Fetching::get(const Published& file) const {
  PartFile part(folder_ / (file.name + ".part"), deadline_,
                [&] { say({.state = FetchProgress::State::waiting, .file = file.name}); });
  if (is_there(file)) return say({.state = FetchProgress::State::already_there, .file = file.name});
  complete(file, part);
  say({.state = FetchProgress::State::unpacking,
       .file = file.name,
       .have = part.size(),
       .total = part.size()});
  fetch::unpack(part.fd(), file, folder_, options_.most_unpacked_bytes);
  const std::uint64_t size = part.size();
  part.remove();
  say({.state = FetchProgress::State::done, .file = file.name, .have = size, .total = size});
}

/// "": the checksum is right.
std::string Fetching::complaint(const Published& file, const PartFile& part) const {
  const std::string sum = fetch::checksum_of(part.fd(), file.checksum, part.path().string());
  if (sum == file.checksum) return "";
  return set_.title + "'s " + file.name + " has the checksum " + sum + ", not " + file.checksum +
         ": what came is not what was published (" + std::to_string(part.size()) + " bytes)";
}

void Fetching::complete(const Published& file, PartFile& part) const {
  const bool was_begun = part.size() > 0;
  download(file, part);
  std::string wrong = complaint(file, part);
  if (!wrong.empty() && was_begun) {  // its beginning may be of another day's file
    part.clear();
    download(file, part);
    wrong = complaint(file, part);
  }
  if (wrong.empty()) return;
  part.clear();
  throw Error(ErrorCode::corrupt_data,
              wrong + "; try again later, or another address (--url, FetchOptions::url)");
}

/// From the first address that has it.
void Fetching::download(const Published& file, const PartFile& part) const {
  fetch::DownloadOptions options{.connect_timeout = options_.connect_timeout,
                                 .stall_timeout = options_.stall_timeout,
                                 .deadline = deadline_,
                                 .attempts = options_.attempts,
                                 .pause = options_.pause,
                                 .most_bytes = options_.most_fetched_bytes};
  options.progress = [&](std::uint64_t have, std::uint64_t total) {
    say({.state = FetchProgress::State::fetching, .file = file.name, .have = have, .total = total});
  };
  say({.state = FetchProgress::State::fetching, .file = file.name, .have = part.size()});
  std::string failures;
  ErrorCode code = ErrorCode::system;
  for (const std::string& url : set_.urls) {
    try {
      return fetch::download(url + file.name, part, options);
    } catch (const Error& error) {
      code = error.code();
      if (code == ErrorCode::corrupt_data) part.clear();
      failures += (failures.empty() ? "" : "; ") + std::string(error.what());
      if (code == ErrorCode::unsupported || deadline_.expired()) break;
    }
  }
  throw Error(code, "cannot fetch " + set_.title + ": " + failures);
}

}  // namespace

void fetch_dataset(PublicDataset set, const fs::path& folder, const FetchOptions& options) {
  Fetching(fetch::published(set, options), folder, options).run();
}

void fetch_dataset(const Group& group, PublicDataset set, const fs::path& folder,
                   const FetchOptions& options) {
  FetchOptions in_time = options;  // those who wait give up after the group's time
  if (group.size() > 1) {
    const auto most =
        std::chrono::floor<std::chrono::milliseconds>(earlier_than(group.impl().context->options.timeout));
    in_time.timeout = std::min(options.timeout, std::max(most, std::chrono::milliseconds(1)));
  }
  once_per_host(group, [&] { fetch_dataset(set, folder, in_time); });
}

}  // namespace lockstep
