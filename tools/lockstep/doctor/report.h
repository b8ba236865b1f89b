// What `lockstep doctor` has found, as a page for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace doctor {

/// Something that a user can do something about.
struct Problem {
  int weight = 0;         ///< the largest come first
  bool is_fatal = false;  ///< training would not run
  std::string what = {};
  std::string remedy = {};
};

class Report {
 public:
  /// What follows belongs to it. `key`: its name in JSON.
  void section(const std::string& title, const std::string& key);
  /// A line; `value` is the same for programs.
  void fact(const std::string& name, const std::string& text, const std::string& key,
            nlohmann::ordered_json value);
  /// Lines that are shown as they are.
  void lines(const std::string& text, const std::string& key, nlohmann::ordered_json value);
  void problem(Problem problem);

  bool trains() const;
  /// With the three worst problems.
  std::string text() const;
  /// With all of them.
  std::string json() const;

 private:
  std::vector<const Problem*> worst_first() const;

  std::string text_;
  std::string key_;
  nlohmann::ordered_json facts_;
  std::vector<Problem> problems_;
};

}  // namespace doctor
