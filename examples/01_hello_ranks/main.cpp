// The smallest program: every rank says who it is, and all of them add up a number.
//
//   lockstep run -np 4 build/release/bin/01_hello_ranks
#include <lockstep/lockstep.h>

#include <array>
#include <exception>
#include <iostream>

int main() try {
  const auto world = lockstep::init();  // from the launcher; without one, a world of one

  std::array<int, 1> sum = {world.rank() + 1};
  lockstep::all_reduce(world, sum).wait();

  std::cout << "rank " << world.rank() << " of " << world.size() << ", local rank " << world.local_rank()
            << " of " << world.local_size() << " on this host; the sum of all ranks' numbers is " << sum[0]
            << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << "01_hello_ranks: " << error.what() << std::endl;
  return 1;
}
