// Where the memory of a probe's call is.
#pragma once

#include <array>

namespace probe {

enum class Memory { own, registered, arena };
inline constexpr std::array all_memories = {Memory::own, Memory::registered, Memory::arena};

}  // namespace probe
