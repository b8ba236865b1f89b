# lockstep_options: what every target of ours compiles with; nothing of it reaches those who use the library.
file(RELATIVE_PATH _to_source ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
string(REGEX REPLACE "/$" "" _to_source "${_to_source}")
add_library(lockstep_options INTERFACE)
target_compile_options(
  lockstep_options
  INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Werror
            $<$<CONFIG:Release>:-g1>
            # GCC 12 sees overlaps in sums of strings that are not there (its bug 105651).
            $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
            $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>
            # Objects name files relative to the source folder: clones share the compiler cache, which itself
            # turns the source folder's path into one relative to the build folder.
            -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
            -ffile-prefix-map=${_to_source}/=
            -ffile-prefix-map=${PROJECT_BINARY_DIR}=build)

if(LOCKSTEP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Instrumented code confuses GCC's search for variables that nobody set: it blames std::regex, and libtorch's data loader.
  target_compile_options(lockstep_options INTERFACE -Wno-maybe-uninitialized)
  if(LOCKSTEP_TRAIN)
    # libtorch's headers have fences, which ThreadSanitizer does not know.
    target_compile_options(lockstep_options INTERFACE -Wno-tsan)
  endif()
endif()

# One kind of position-independent code everywhere, so that executables can use the library's precompiled headers.
add_compile_options(-fPIC)
