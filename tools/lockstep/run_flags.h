// The options of `lockstep run`: its own, and those that users of torchrun and horovodrun have in their scripts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// As they were written; "": not given.
struct RunFlags {
  std::string ranks;
  std::string hosts;
  std::string hostfile;
  std::vector<std::string> variables;
  std::string folder;
  std::string shell;
  std::string agent;
  std::string tree_width;
  std::string profile;
  std::string timeline;
  std::string timeline_names;
  std::string report;
  std::string metrics;
  std::string explain_after;
  std::string engine;
  std::string start_timeout;
  std::string master_port;
  std::string grace;
  std::string record_dir;
  std::string max_restarts;
  bool no_pin = false;
  bool mkl_avx512 = false;
  bool profile_all = false;
  bool no_prefix = false;
  bool nested = false;
  bool dry_run = false;

  std::string ranks_per_host;
  std::string nodes;
  std::string node_rank;
  std::string master_address;
  std::string meeting_backend;
  std::string meeting;
  std::string meeting_settings;
  std::string run_id;
  std::vector<std::string> roles;
  std::vector<int> roles_of_commands;  ///< how many of `roles` each command has
  std::vector<std::string> tolerated;
  std::vector<std::string> restarted;
  std::string least_ranks;
  std::string discovery_script, slots_per_host;
  std::string most_ranks;
  std::string log_dir;
  std::string redirects;
  std::string tee;
  std::string local_ranks_filter;
  bool standalone = false;
  bool module = false;
  bool no_python = false;
  bool run_path = false;

  std::string output_filename;
  std::string timeline_filename;
  bool check_build = false;
};

void describe(CLI::App& app, RunFlags& flags);

/// One line about the options that were given and mean nothing here; "" where none was.
std::string say_what_means_nothing(const CLI::App& app);

/// The number of words that come before the program, which begins at the first word that is neither an option nor an option's
/// value, or after "--". Options become as CLI11 knows them: --np for -np, --node-rank for --node_rank. Throws
/// Error{invalid_argument} for a flag with a value.
std::size_t end_of_options(const CLI::App& app, std::vector<std::string>& arguments);

/// Throws Error{invalid_argument} for an option that is there twice and says one thing.
void refuse_repetition(const CLI::App& app);
