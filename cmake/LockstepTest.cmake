# lockstep_add_test(name sources... [LIBRARIES libs...] [TIMEOUT seconds] [RUN_SERIAL] [EACH_ALONE])
# A GoogleTest executable build/<preset>/bin/<name>; each TEST is one test of ctest, labelled with the executable's
# name; with libtorch, which takes 0.4 s to load, each suite is one. RUN_SERIAL: no other test runs beside these. EACH_ALONE:
# sources are not compiled in batches (Batches.cmake).
# Tests find in the environment:
#   LOCKSTEP_SOURCE_DIR, LOCKSTEP_BINARY_DIR   the latter's bin/lockstep is the tool
#   LOCKSTEP_PEERS                             $LOCKSTEP_PEERS/NAME/bin, after script/bootstrap --peers NAME
# Long ones have the label long (LongTests.cmake).
include(Batches)
include(GoogleTest)
include(LongTests)

function(lockstep_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "RUN_SERIAL;EACH_ALONE" "TIMEOUT" "LIBRARIES")
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 240)
  endif()
  if(NOT test_LIBRARIES)
    set(test_LIBRARIES Lockstep::core)
  endif()
  add_executable(${name} ${test_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} lockstep_options lockstep_private GTest::gmock GTest::gtest_main)
  lockstep_compile_quickly(${name})
  if(NOT test_EACH_ALONE)
    lockstep_batches(${name} FOLDER 8 ${test_UNPARSED_ARGUMENTS})
  endif()
  set(discover "")
  if("Lockstep::train" IN_LIST test_LIBRARIES)
    lockstep_use_torch_header(${name})
    set(discover "set(name ${name})
set(executable $<TARGET_FILE:${name}>)
set(list ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.txt)
include(${PROJECT_SOURCE_DIR}/cmake/DiscoverSuites.cmake)\n")
  else()
    # Names as GoogleTest has them: values that it cannot print are addresses, and ctest orders by what a name took last.
    gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  endif()

  # gtest_discover_tests loses properties that are lists: ctest sets them itself, after it found the tests.
  string(JOIN ";" environment LOCKSTEP_SOURCE_DIR=${PROJECT_SOURCE_DIR} LOCKSTEP_BINARY_DIR=${PROJECT_BINARY_DIR}
         LOCKSTEP_PEERS=${LOCKSTEP_DEPS}/peers)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
  file(GENERATE OUTPUT ${file} CONTENT "${discover}set(LOCKSTEP_SANITIZE ${LOCKSTEP_SANITIZE})
include(${PROJECT_SOURCE_DIR}/cmake/LongTests.cmake)
foreach(test IN LISTS ${name}_TESTS)
  lockstep_long_label(long ${name} \"\${test}\")
  set(labels ${name} \${long})
  set_tests_properties(\"\${test}\" PROPERTIES
    TIMEOUT ${test_TIMEOUT} LABELS \"\${labels}\" RUN_SERIAL ${test_RUN_SERIAL}
    ENVIRONMENT \"${environment}\")
endforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
