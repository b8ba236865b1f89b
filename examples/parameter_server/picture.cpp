#include "picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "examples/support/line.h"

using examples::line;

Losses read_losses(const std::string& path) {
  std::ifstream file(path);
  std::string header;
  if (!std::getline(file, header) || header != "seconds,loss")
    throw std::runtime_error("'" + path + "' cannot be read, or is no file that --csv has written");
  Losses losses{.name = std::filesystem::path(path).stem().string()};
  double seconds = 0, loss = 0;
  for (char comma = 0; file >> seconds >> comma >> loss;) {
    losses.seconds.push_back(seconds);
    losses.losses.push_back(loss);
  }
  return losses;
}

void write_losses(const std::string& path, const Losses& losses) {
  std::ofstream file(path);
  file << "seconds,loss\n";
  for (std::size_t i = 0; i < losses.losses.size(); ++i)
    file << losses.seconds[i] << "," << losses.losses[i] << "\n";
  if (!file.flush()) throw std::runtime_error("'" + path + "' cannot be written");
}

std::string svg(const std::vector<Losses>& trainings, const std::string& title) {
  constexpr double left = 80, right = 600, top = 60, bottom = 360;
  constexpr std::array<const char*, 4> colours = {"#3b6ea5", "#c0504d", "#4f9d5d", "#8064a2"};
  double longest = 1e-3, least = 1e9, most = 1e-9;
  for (const Losses& training : trainings) {
    for (const double seconds : training.seconds) longest = std::max(longest, seconds);
    for (const double loss : training.losses) {
      if (!(loss > 0) || !std::isfinite(loss)) continue;
      least = std::min(least, loss);
      most = std::max(most, loss);
    }
  }
  const int low = static_cast<int>(std::floor(std::log10(least))),
            high = static_cast<int>(std::ceil(std::log10(most)));
  const auto y_of = [&](double loss) {
    return bottom - (bottom - top) * (std::log10(loss) - low) / std::max(1, high - low);
  };
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 420\" font-family=\"sans-serif\" "
      "font-size=\"14\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
      line("<text x=\"20\" y=\"30\" font-size=\"16\">%s</text>\n", title.c_str());
  for (int power = low; power <= high; ++power) {
    const double y = y_of(std::pow(10, power));
    text += line("<path d=\"M%.0f %.1f H%.0f\" stroke=\"#dddddd\"/>\n", left, y, right) +
            line("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n", left - 8, y + 5, power);
  }
  for (int tick = 0; tick <= 4; ++tick) {
    const double x = left + (right - left) * tick / 4;
    text += line("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%.1f</text>\n", x, bottom + 20,
                 longest * tick / 4);
  }
  text += line("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">seconds</text>\n", (left + right) / 2,
               bottom + 42) +
          line("<text x=\"20\" y=\"%.0f\">loss</text>\n", top - 8);
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    const Losses& training = trainings[i];
    const char* const colour = colours[i % colours.size()];
    std::string points;
    for (std::size_t j = 0; j < training.losses.size(); ++j) {
      if (training.losses[j] > 0 && std::isfinite(training.losses[j]))
        points += line("%.1f,%.1f ", left + (right - left) * training.seconds[j] / longest,
                       y_of(training.losses[j]));
    }
    text += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string(colour) + "\" points=\"" +
            points + "\"/>\n" +
            line("<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n", right + 20,
                 top + 22 * static_cast<double>(i + 1), colour, training.name.c_str());
  }
  return text + "</svg>\n";
}
