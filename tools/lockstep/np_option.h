// -np, as every launcher has it: CLI11 knows no short name of two letters, so it is handed --np.
#pragma once

#include <cctype>
#include <string>

/// Turns -np, -np=4 and -np4 into --np, --np=4 and --np=4; other words stay.
inline void np_as_long_option(std::string& word) {
  if (word == "-np" || word.starts_with("-np=")) word.insert(0, "-");
  if (word.size() > 3 && word.starts_with("-np") && std::isdigit(static_cast<unsigned char>(word[3])) != 0)
    word.replace(0, 3, "--np=");
}
