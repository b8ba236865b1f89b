// Collectives that are found by name, in any order, as Horovod has them; not in <lockstep/lockstep.h>.
#pragma once

#include <lockstep/engine/named_collectives.h>
