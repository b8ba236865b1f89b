// What `lockstep top` shows of a job, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/launch/live_record.h"
#include "lockstep/view/live/live_rates.h"

/// A job between two looks at it.
struct TopView {
  lockstep::launch::RunningJob job = {};
  std::vector<lockstep::view::RankRates> ranks = {};
  std::vector<std::string> states = {};  ///< of each: "running", "waiting 2.1 s for rank 1 in all_reduce"
  int ranks_in_all = 0;                  ///< on all hosts
  std::uint64_t elapsed_ns = 0;          ///< since the first rank has joined
  std::uint64_t interval_ns = 0;

  static TopView of(const lockstep::launch::RunningJob& job, const lockstep::view::LiveHost& before,
                    const lockstep::view::LiveHost& after);
};

/// Lines of at most `columns` characters, and no more than `lines` of them; 0: as many as it takes. Plain text, whatever
/// names hold.
std::string table_of(const TopView& view, std::size_t columns = 0, std::size_t lines = 0);

/// One line.
std::string json_of(const TopView& view);

/// A text of others with control characters written out.
std::string printable(std::string_view text);
