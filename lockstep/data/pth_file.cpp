#include "lockstep/data/pth_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/data/pth_pickle.h"
#include "lockstep/data/zip_writer.h"

namespace lockstep {
namespace {

constexpr std::string_view kind = "state dict";
constexpr std::string_view pickle_name = "data.pkl";
constexpr int newest_version = 10;  // of the archives of torch 1.6 to 2.15

/// What torch.save wrote before 1.6 begins with: a pickle of a number that nobody would take for another.
constexpr std::string_view old_start = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::size_t tar_mark_offset = 257;
constexpr std::string_view tar_mark = "ustar";

ZipFile open_archive(const std::filesystem::path& path) {
  InputFile file(path, std::string(kind));
  std::array<char, tar_mark_offset + tar_mark.size()> bytes{};
  const auto length = std::min<std::uint64_t>(file.size(), bytes.size());
  file.read(0, std::as_writable_bytes(std::span(bytes)).first(length));
  const std::string_view start(bytes.data(), length);
  if (start.starts_with(old_start) || start.ends_with(tar_mark)) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: it is as torch.save wrote before torch 1.6; write it anew with a newer torch: "
                    "torch.save(torch.load(path), path)",
                    file.name()));
  }
  if (length >= 4 && !start.starts_with("PK")) {
    throw Error(
        ErrorCode::corrupt_data,
        fmt::format("{}: at byte 0 expected a zip archive as torch.save writes it, found {}; this is another "
                    "kind of file: check its name",
                    file.name(), base::quote(start.substr(0, 4))));
  }
  return ZipFile(std::move(file));
}

/// The folder, with a slash, in which data.pkl lies.
std::string folder_of(const ZipFile& zip) {
  std::string found;
  for (const auto& [name, entry] : zip.entries()) {
    const auto slash = name.find('/');
    if (slash == std::string::npos || std::string_view(name).substr(slash + 1) != pickle_name) continue;
    if (!found.empty()) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}: expected one data.pkl, found one in {} and another, {}", zip.name(),
                              base::quote(found), base::quote(name)));
    }
    found = name.substr(0, slash + 1);
  }
  if (found.empty()) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: expected an archive as torch.save writes it, found a zip archive without a "
                            "data.pkl in a folder; check its name",
                            zip.name()));
  }
  return found;
}

}  // namespace

const ZipFile::Entry* PthFile::find(const std::string& name) const {
  const auto found = zip_.entries().find(folder_ + name);
  return found == zip_.entries().end() ? nullptr : &found->second;
}

/// Of a file in the archive that says one thing; empty if it is not there.
std::string PthFile::short_text(const std::string& name) const {
  const ZipFile::Entry* const entry = find(name);
  if (entry == nullptr) return "";
  if (entry->bytes > 20) return "a long text";
  const auto bytes = zip_.read(*entry);
  return std::string(base::text_of(bytes));
}

void PthFile::check_archive() const {
  if (find("constants.pkl") != nullptr) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: it is a TorchScript archive (torch.jit.save, or torch::save in C++) and no state "
                    "dict; save model.state_dict() with torch.save, or the model with save_state_dict()",
                    name()));
  }
  const std::string order = short_text("byteorder");  // not there before torch 2.1
  if (order == "big") {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: it was written on a machine with the other byte order "
                            "(big); write it anew on one with the order of this",
                            name()));
  }
  if (!order.empty() && order != "little") {
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: expected a byteorder of little or big, found {}",
                                                     name(), base::quote(order)));
  }
  const std::string version = short_text("version");
  int number = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), number);
  if (error != std::errc() || (end != version.data() + version.size() && *end != '\n') || number < 1) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: expected the number of a version, found {}", name(), base::quote(version)));
  }
  if (number > newest_version) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: it is of version {}; up to {} are read", name(), number, newest_version));
  }
}

PthFile::PthFile(const std::filesystem::path& path, const std::string& key)
    : zip_(open_archive(path)), folder_(folder_of(zip_)) {
  check_archive();
  const ZipFile::Entry& pickle = *find(std::string(pickle_name));
  if (pickle.bytes > pth_most_pickle_bytes) {
    throw Error(ErrorCode::unsupported, fmt::format("{}: its data.pkl has {} bytes; up to {} are read",
                                                    name(), pickle.bytes, pth_most_pickle_bytes));
  }
  index_ = decode_pth_pickle(zip_.read(pickle), name(), key);
  for (const PthStorage& storage : index_.storages) {
    const ZipFile::Entry* const entry = find("data/" + storage.key);
    if (entry == nullptr || entry->bytes != storage.bytes) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}: expected a file {} of {} bytes in the archive, found {}", name(),
                              base::quote(folder_ + "data/" + storage.key), storage.bytes,
                              entry == nullptr ? "none" : fmt::format("one of {}", entry->bytes)));
    }
    contents_.push_back(entry);
  }
}

void PthFile::read(std::size_t number, std::span<std::byte> bytes) const {
  zip_.read(*contents_.at(number), bytes);
  const PthStorage& storage = index_.storages[number];
  if (!storage.has_bools) return;
  const auto wrong = std::ranges::find_if(bytes, [](std::byte byte) { return byte > std::byte{1}; });
  if (wrong == bytes.end()) return;
  throw Error(ErrorCode::corrupt_data,
              fmt::format("{}: expected 0 or 1 for each bool in storage {}, found {} at its byte {}", name(),
                          base::quote(storage.key), std::to_integer<int>(*wrong), wrong - bytes.begin()));
}

void write_pth_file(const std::filesystem::path& path, const PthIndex& index, const PthContent& content) {
  FileReplacement file(path, std::string(kind));
  ZipWriter zip([&](std::span<const std::byte> bytes) { file.write(bytes); });
  const auto add_text = [&](const char* name, std::string_view text) {
    zip.add(name, std::as_bytes(std::span(text)));
  };
  zip.add("archive/data.pkl", encode_pth_pickle(index));
  add_text("archive/byteorder", "little");
  for (std::size_t i = 0; i < index.storages.size(); ++i)
    zip.add("archive/data/" + index.storages[i].key, content(i));
  add_text("archive/version", "3\n");
  zip.finish();
  file.commit();
}

}  // namespace lockstep
