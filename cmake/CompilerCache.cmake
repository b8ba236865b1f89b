# Compiles through ccache where it is installed, in a way that clones share: paths under the source folder
# enter the cache's keys relative to the build folder, so a clone in another folder finds what the first one built.
find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(_settings
      CCACHE_BASEDIR=${CMAKE_CURRENT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  if(NOT DEFINED ENV{CCACHE_DIR})
    list(APPEND _settings CCACHE_DIR=${LOCKSTEP_CACHE}/ccache CCACHE_MAXSIZE=10G)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${_settings} ${LOCKSTEP_CCACHE}
      CACHE STRING "What runs the compiler")
endif()
