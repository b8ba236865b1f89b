// What the user asks for, by variables of our own or of mpitrace's.
#pragma once

#include <string>

namespace lockstep::mpitrace {

struct Settings {
  std::string folder = ".";
  bool all = false;  ///< a file for each rank
  bool sites = false;
  std::string barriers;  ///< "": none, "yes": before each blocking collective, else names with commas between
  std::string run;       ///< of `lockstep profile`
  std::string timeline;  ///< the file that is wanted; "": none
  std::string problems;  ///< lines about what makes no sense, each of which counts as unset
};
Settings read_settings();

/// SLURM_JOB_ID and so on; "" where none is set.
std::string job_of_batch_system();

}  // namespace lockstep::mpitrace
