#include "report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace doctor {
namespace {

constexpr std::size_t most_shown = 3;
constexpr std::size_t name_width = 18;

}  // namespace

void Report::section(const std::string& title, const std::string& key) {
  text_ += (text_.empty() ? "" : "\n") + title + "\n";
  key_ = key;
}

void Report::fact(const std::string& name, const std::string& text, const std::string& key,
                  nlohmann::ordered_json value) {
  text_ += fmt::format("  {:{}}  {}\n", name, name_width, text);
  facts_[key_][key] = std::move(value);
}

void Report::lines(const std::string& text, const std::string& key, nlohmann::ordered_json value) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    text_ += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  facts_[key_][key] = std::move(value);
}

void Report::problem(Problem problem) { problems_.push_back(std::move(problem)); }

bool Report::trains() const { return std::ranges::none_of(problems_, &Problem::is_fatal); }

std::vector<const Problem*> Report::worst_first() const {
  std::vector<const Problem*> sorted;
  for (const Problem& problem : problems_) sorted.push_back(&problem);
  std::ranges::stable_sort(sorted, [](const Problem* one, const Problem* other) {
    return std::pair(one->is_fatal, one->weight) > std::pair(other->is_fatal, other->weight);
  });
  return sorted;
}

std::string Report::text() const {
  std::string text = text_ + "\n";
  if (problems_.empty()) return text + "Nothing to mend.\n";
  const auto sorted = worst_first();
  const std::size_t shown = std::min(most_shown, sorted.size());
  text += shown == sorted.size() ? "To mend\n" : fmt::format("To mend first, of {}\n", sorted.size());
  for (std::size_t i = 0; i < shown; ++i) {
    text +=
        fmt::format("  {}. {}{}\n     {}\n", i + 1, sorted[i]->is_fatal ? "training does not run here: " : "",
                    sorted[i]->what, sorted[i]->remedy);
  }
  return text;
}

std::string Report::json() const {
  nlohmann::ordered_json all = {{"lockstep", LOCKSTEP_VERSION}, {"trains", trains()}};
  all.update(facts_.is_null() ? nlohmann::ordered_json::object() : facts_);
  all["problems"] = nlohmann::ordered_json::array();
  for (const Problem* problem : worst_first()) {
    all["problems"].push_back(
        {{"what", problem->what}, {"remedy", problem->remedy}, {"is_fatal", problem->is_fatal}});
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace doctor
