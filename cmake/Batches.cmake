# lockstep_batches(TARGET FLOOR|FOLDER MOST SOURCE...): where LOCKSTEP_UNITY is on, compiles these sources of TARGET in batches of about equal
# size, at most MOST in each: what they include is parsed, and what they all instantiate is instantiated, once for all of them
# (docs/decisions/0016). Sources of different floors (the first folder), or of different folders, never share one. A source with options of
# its own stays alone.
function(lockstep_batches target by most)
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  set(places "")
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH place ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    get_filename_component(place ${place} DIRECTORY)
    string(REGEX REPLACE "^(\\.\\./)+lockstep/" "" place "${place}") # floors, wherever they are compiled
    if(by STREQUAL "FLOOR")
      string(REGEX REPLACE "/.*" "" place "${place}")
    endif()
    if(place STREQUAL "")
      set(place here)
    endif()
    string(MAKE_C_IDENTIFIER "${place}" place)
    list(APPEND places ${place})
    list(APPEND of_${place} ${source})
  endforeach()
  list(REMOVE_DUPLICATES places)
  foreach(place ${places})
    list(SORT of_${place})
    list(LENGTH of_${place} count)
    math(EXPR batches "(${count} + ${most} - 1) / ${most}")
    set(index 0)
    foreach(source ${of_${place}})
      math(EXPR batch "${index} * ${batches} / ${count}")
      math(EXPR index "${index} + 1")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${place}_${batch})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A batch includes its sources, which GCC takes for headers then, where a type of no linkage would be a trap.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# lockstep_compile_quickly(TARGET): by -O1 what takes no time itself, as tests, examples and cold code: -O3 takes the compiler half as long
# again.
function(lockstep_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# lockstep_use_torch_header(TARGET [ONE_BATCH]): what includes libtorch takes its header as it was compiled once, but where all of TARGET is
# one batch that script/demo needs: writing the compiled header takes longer than two such batches take without it. All by one level: GCC
# 12 crashes in code by -O3 on a header by -O1.
function(lockstep_use_torch_header target)
  lockstep_compile_quickly(${target})
  if(NOT LOCKSTEP_UNITY OR NOT "ONE_BATCH" IN_LIST ARGN)
    target_precompile_headers(${target} REUSE_FROM lockstep_torch_header)
  endif()
endfunction()

# lockstep_larger_heap(TARGET): whose batches fill a heap that GCC would else search for garbage every 130 MB: a tenth of its time, to need 0.7 GB
# instead of 1.0.
function(lockstep_larger_heap target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:SHELL:--param ggc-min-expand=300 --param ggc-min-heapsize=262144>")
  endif()
endfunction()
