// The images that several examples train on: from files, or made up where there are none.
#pragma once

#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/run.h"

namespace examples {

struct ImageFlags {
  std::string data;
  bool synthetic = false;
  std::size_t samples = 10'000;
  float noise = 1;
};

/// `data`: what is in the folder of that name.
inline void add_image_flags(CLI::App& app, ImageFlags& flags, const std::string& data) {
  app.add_option("--data", flags.data, data)->capture_default_str();
  app.add_flag("--synthetic", flags.synthetic, "Train on images that are made up");
  app.add_option("--samples", flags.samples, "Of these, so many; a fifth as many to test")
      ->check(count_from(5))
      ->capture_default_str();
  app.add_option("--noise", flags.noise, "Of these; what they show is 0.58 strong")
      ->check(from_zero())
      ->capture_default_str();
}

struct Images {
  lockstep::BatchMaker batch;
  std::size_t size = 0;
};

template <class Set>
Images images_of(const Set& set) {
  return {lockstep::batch_maker(set), *set.size()};
}

enum class Part { train, test };

inline Images made_up_images(const ImageFlags& flags, Part part, std::vector<std::int64_t> shape) {
  const bool is_test = part == Part::test;
  return images_of(lockstep::SyntheticImages({.samples = is_test ? flags.samples / 5 : flags.samples,
                                              .shape = std::move(shape),
                                              .noise = flags.noise,
                                              .first = is_test ? flags.samples : 0}));
}

/// What `open` returns; where it says that files are missing or others, with what to do about it.
template <class Open>
Images images_from_files(const std::string& remedy, Open open) {
  try {
    return images_of(open());
  } catch (const lockstep::Error& error) {
    if (error.code() != lockstep::ErrorCode::invalid_argument) throw;
    lockstep::throw_invalid_argument(std::string(error.what()) + "; " + remedy);
  }
}

}  // namespace examples
