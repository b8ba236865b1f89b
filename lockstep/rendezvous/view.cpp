#include "lockstep/rendezvous/view.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {

std::string to_text(const Life& life) {
  return std::to_string(life.rank) + (life.incarnation == 0 ? "" : "." + std::to_string(life.incarnation));
}

std::optional<int> View::place_of(const Life& life) const {
  const auto found = std::ranges::find(members, life);
  if (found == members.end()) return std::nullopt;
  return static_cast<int>(found - members.begin());
}

std::vector<int> View::ranks() const {
  std::vector<int> ranks;
  for (const Life& life : members) ranks.push_back(life.rank);
  return ranks;
}

std::string View::to_text() const {
  std::string text = std::to_string(number) + "\n";
  for (const Life& life : members)
    text += std::to_string(life.rank) + " " + std::to_string(life.incarnation) + "\n";
  return text;
}

View View::parse(const std::string& text) {
  std::istringstream in(text);
  View view;
  Life life;
  bool is_sound = static_cast<bool>(in >> view.number);
  while (in >> life.rank >> life.incarnation) {
    is_sound = is_sound && life.rank >= 0 && life.incarnation >= 0 && !view.has(life);
    view.members.push_back(life);
  }
  if (!is_sound || !in.eof() || view.to_text() != text)
    throw Error(ErrorCode::corrupt_data, "the job's store has " + base::quote(text) + " for a view");
  return view;
}

}  // namespace lockstep
