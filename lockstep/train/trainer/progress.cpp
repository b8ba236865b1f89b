#include "lockstep/train/trainer/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace lockstep {
namespace {

/// As printf.
template <class... Values>
std::string format_text(const char* format, Values... values) {
  std::array<char, 100> text{};
  (void)std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

double seconds_between(TrainingProgress::Time begin, TrainingProgress::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// "0:07", "12:40", "3:04:05".
std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::min(std::max(seconds, 0.0), 1e9));
  const long long hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours == 0) return format_text("%lld:%02lld", minutes, whole % 60);
  return format_text("%lld:%02lld:%02lld", hours, minutes, whole % 60);
}

std::string count_text(std::uint64_t number) { return std::to_string(number); }

int columns_of_terminal() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

TrainingProgress::TrainingProgress(const Group& group, const ProgressOptions& options)
    : options_(options), ranks_(group.size()) {
  if (options_.out == nullptr && group.rank() == 0) {
    options_.out = &std::cout;
    options_.is_terminal = ::isatty(STDOUT_FILENO) == 1;
    options_.columns = columns_of_terminal();
  }
  if (group.rank() != 0) options_.out = nullptr;
}

void TrainingProgress::begin(std::uint64_t epoch, std::uint64_t epochs, std::uint64_t steps, Time now) {
  epoch_ = epoch;
  epochs_ = epochs;
  steps_ = steps;
  done_ = images_ = 0;
  begin_ = last_ = now;
}

void TrainingProgress::step(std::uint64_t images, double loss, Time now) {
  ++done_;
  images_ += images;
  loss_ = loss;
  if (options_.out == nullptr) return;
  if (now - last_ < (options_.is_terminal ? options_.rewritten_every : options_.line_every)) return;
  last_ = now;
  if (!options_.is_terminal) return write_line(line(now));
  // A line that is wrapped could not be rewritten: \r goes to the begin of its last part only.
  const auto most = static_cast<std::size_t>(std::max(options_.columns - 1, 1));
  *options_.out << '\r' << line(now).substr(0, most) << "\x1b[K" << std::flush;
  is_open_ = true;
}

void TrainingProgress::end(const EpochResult& result, Time now) {
  if (options_.out == nullptr) return;
  std::string text = "epoch " + count_text(result.epoch + 1) + "/" + count_text(epochs_);
  const auto figure = [&text](const char* format, double value) {
    if (!std::isnan(value)) text += format_text(format, value);
  };
  figure("  loss %.4g", result.train_loss);
  figure("  eval loss %.4g", result.eval_loss);
  figure("  accuracy %.4f", result.eval_accuracy);
  figure("  %.0f images/s", result.images_per_second);
  figure("  rate %.4g", result.learning_rate);
  const double seconds = seconds_between(begin_, now);
  write_line(text + "  " + (seconds < 60 ? format_text("%.1f s", seconds) : clock_text(seconds)));
}

void TrainingProgress::say(const std::string& line) {
  if (options_.out != nullptr) write_line(line);
}

std::string TrainingProgress::bar() const {
  constexpr std::size_t width = 20;
  const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(steps_));
  const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
  std::string picture(full, '=');
  if (full < width) picture += '>';
  picture.resize(width, ' ');
  return format_text(" [%s] %3.0f %%", picture.c_str(), std::floor(100 * share));
}

std::string TrainingProgress::line(Time now) const {
  const double seconds = seconds_between(begin_, now);
  std::string text = "epoch " + count_text(epoch_ + 1) + "/" + count_text(epochs_);
  text += steps_ > 0 ? bar() : format_text("  step %llu", static_cast<unsigned long long>(done_));
  if (seconds > 0) text += format_text("  %.0f images/s", static_cast<double>(images_) * ranks_ / seconds);
  text += format_text("  loss %.4g", loss_);
  if (steps_ < done_) return text;
  const double left = seconds / static_cast<double>(done_) * static_cast<double>(steps_ - done_);
  return text + "  " + clock_text(left) + " left";
}

void TrainingProgress::write_line(const std::string& text) {
  if (is_open_) *options_.out << "\r\x1b[K";
  is_open_ = false;
  *options_.out << text << '\n' << std::flush;
}

}  // namespace lockstep
