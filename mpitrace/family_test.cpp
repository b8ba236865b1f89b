#include "mpitrace/family.h"

#include <gtest/gtest.h>

namespace lockstep::mpitrace {
namespace {

TEST(MpiFamily, IsReadFromTheLibrarysName) {
  EXPECT_EQ(family_of_library("/usr/lib/libmpi.so.40"), Family::openmpi);
  EXPECT_EQ(family_of_library("libmpi.so.40.30.4"), Family::openmpi);
  EXPECT_EQ(family_of_library("libmpi_ibm.so.40"), Family::openmpi);
  for (const char* name :
       {"libmpi.so.12", "/opt/intel/lib/libmpi.so.12.0", "libmpich.so.12", "libmpi_cray.so.12"})
    EXPECT_EQ(family_of_library(name), Family::mpich) << name;
  EXPECT_EQ(family_of_library("libmpi_abi.so.1"), Family::standard);
}

TEST(MpiFamily, OtherLibrariesHaveNone) {
  for (const char* name :
       {"", "libc.so.6", "libmpifort.so.12", "libmpicxx.so.12", "libmpichfort.so.12", "libmpi_mpifh.so.40",
        "libmpi.so", "libmpi_usempif08.so.40", "/libmpi.so.12/libc.so.6"})
    EXPECT_EQ(family_of_library(name), std::nullopt) << name;
}

TEST(MpiFamily, HasALibraryOfOurs) {
  EXPECT_EQ(library_for(Family::standard), "liblockstep_mpitrace_abi.so");
  for (const Family family : {Family::openmpi, Family::mpich, Family::standard})
    EXPECT_EQ(family_named(name_of(family)), family);
  EXPECT_EQ(family_named("lam"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::mpitrace
