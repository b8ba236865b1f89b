#include "lockstep/train/trainer/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/words.h"

namespace lockstep {
namespace {

// Tags of protobuf: number << 3 | kind, of which 0 is a varint, 1 eight bytes, 2 a length and bytes, 5 four
// bytes.
constexpr char event_wall_time = 1 << 3 | 1;
constexpr char event_step = 2 << 3;
constexpr char event_file_version = 3 << 3 | 2;
constexpr char event_summary = 5 << 3 | 2;
constexpr char summary_value = 1 << 3 | 2;
constexpr char value_tag = 1 << 3 | 2;
constexpr char value_simple_value = 2 << 3 | 5;

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes + static_cast<char>(number);
}

std::string with_length(char tag, std::string_view content) {
  return (tag + varint(content.size())).append(content);
}

/// A field of four or eight bytes.
template <base::Number T>
std::string field_of(char tag, T number) {
  std::string field(1, tag);
  base::append_number(field, number);
  return field;
}

void append_checksum_of(std::string_view bytes, std::string& out) {
  base::append_number(out, masked_crc32c(std::as_bytes(std::span(bytes))));
}

std::string record_of(const std::string& event) {
  std::string record;
  base::append_number(record, std::uint64_t{event.size()});
  append_checksum_of(std::string(record), record);
  record += event;
  append_checksum_of(event, record);
  return record;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name_in_path() {
  std::string name = base::host_name();
  std::ranges::replace(name, '/', '_');
  return name;
}

}  // namespace

std::string first_event(double wall_time) {
  return record_of(field_of(event_wall_time, wall_time) + with_length(event_file_version, "brain.Event:2"));
}

std::string scalar_event(double wall_time, std::uint64_t step, std::string_view tag, float value) {
  const std::string figure = with_length(value_tag, tag) + field_of(value_simple_value, value);
  const std::string summary = with_length(summary_value, figure);
  const std::string step_field = step == 0 ? "" : event_step + varint(step);  // as protobuf leaves out a 0
  return record_of(field_of(event_wall_time, wall_time) + step_field + with_length(event_summary, summary));
}

EventFile::EventFile(const std::filesystem::path& folder, const Group& group) {
  if (group.rank() != 0) return;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw Error(ErrorCode::system, "cannot make the folder " + folder.string() + " for TensorBoard: " +
                                       failure.message() + "; name another, or make it");
  }
  const double begin = now();
  std::string name = "events.out.tfevents.";
  name.append(std::to_string(static_cast<std::uint64_t>(begin))).append(".").append(host_name_in_path());
  name.append(".").append(std::to_string(::getpid()));
  // A process that begins two runs within a second has two files.
  for (int copy = 0; !fd_; ++copy) {
    path_ = folder / (copy == 0 ? name : name + "." + std::to_string(copy));
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!fd_ && errno != EEXIST)
      throw_system("cannot make the event file " + path_.string() + " for TensorBoard");
  }
  write(first_event(begin));
}

void EventFile::add(std::string_view tag, double value, std::uint64_t step) {
  if (fd_) write(scalar_event(now(), step, tag, static_cast<float>(value)));
}

void EventFile::write(const std::string& record) {
  for (std::span<const char> rest = record; !rest.empty();) {
    const auto written = ::write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system("cannot write to the event file " + path_.string());
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace lockstep
