#include "lockstep/backend/call_record.h"

#include "lockstep/base/hash.h"

namespace lockstep {

CallRecord::CallRecord(RecordPlaces places, const std::string& group, const Members& members)
    : places_(std::move(places)),
      group_(fnv1a_32(group)),
      name_place_(places_.group_names->enter({group_, members.size(), members.rank(), group})) {}

std::uint64_t CallRecord::number_of(const Plan& plan) {
  const auto index = static_cast<std::size_t>(plan.choice - schedule::all_algorithms().data());
  if (index >= numbers_.size()) numbers_.resize(index + 1);
  std::uint64_t& number = numbers_[index];
  if (number == 0) number = places_.recorder->number_of(plan.choice->name);
  return number;
}

}  // namespace lockstep
