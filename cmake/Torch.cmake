# Makes the target Lockstep::torch from a libtorch folder by hand: libtorch's own TorchConfig.cmake insists on a
# CUDA toolkit where the library was built with CUDA. Used by the build, by the installed package
# (LockstepConfig.cmake) and, as `cmake -P`, by script/bootstrap to judge a user's libtorch.
#
# A libtorch folder holds include/torch, lib/libtorch_cpu.so, share/cmake/Torch. Looked for in this order:
#   LOCKSTEP_TORCH      environment or variable
#   CMAKE_PREFIX_PATH   variable or environment
#   the one that the installed package was built with
#   LOCKSTEP_DEPS       variable: where script/bootstrap unpacks the pinned one
set(LOCKSTEP_TORCH_VERSION_MIN 2.5)

# Sets `out` to an error message, or to nothing if the libtorch in `folder` can be used. Sets `out`_version.
function(lockstep_judge_torch folder out)
  set(${out} "" PARENT_SCOPE)
  set(${out}_version "" PARENT_SCOPE)
  set(version_file ${folder}/share/cmake/Torch/TorchConfigVersion.cmake)
  if(NOT EXISTS ${version_file} OR NOT EXISTS ${folder}/lib/libtorch_cpu.so)
    set(${out} "${folder} holds no libtorch (no lib/libtorch_cpu.so or no share/cmake/Torch)" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${version_file} version REGEX "PACKAGE_VERSION \"" LIMIT_COUNT 1)
  string(REGEX REPLACE ".*PACKAGE_VERSION \"([0-9.]+).*" "\\1" version "${version}")
  set(${out}_version "${version}" PARENT_SCOPE)
  if(version VERSION_LESS LOCKSTEP_TORCH_VERSION_MIN)
    set(${out} "the libtorch in ${folder} is ${version}; Lockstep needs ${LOCKSTEP_TORCH_VERSION_MIN} or newer" PARENT_SCOPE)
    return()
  endif()
  # The old C++ ABI shows in the names of functions that take a std::string (Ss): nothing would link.
  file(STRINGS ${folder}/lib/libc10.so old_abi REGEX "c105ErrorC[12]ENS_14SourceLocationESs" LIMIT_COUNT 1)
  if(old_abi)
    set(${out} "the libtorch in ${folder} was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0); Lockstep needs a build with the new one" PARENT_SCOPE)
  endif()
endfunction()

# Sets `out` to the libtorch folder to use, or to nothing.
function(lockstep_find_torch out)
  foreach(given "$ENV{LOCKSTEP_TORCH}" "${LOCKSTEP_TORCH}")
    if(given)
      string(REGEX REPLACE "/+$" "" given "${given}")
      if(NOT EXISTS ${given}/share/cmake/Torch AND EXISTS ${given}/torch/share/cmake/Torch)
        set(given ${given}/torch)
      endif()
      set(${out} ${given} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  string(REPLACE ":" ";" environment_path "$ENV{CMAKE_PREFIX_PATH}")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH environment_path)
    # A libtorch folder, a site-packages folder, or torch.utils.cmake_prefix_path.
    foreach(folder ${prefix} ${prefix}/torch ${prefix}/../..)
      if(EXISTS ${folder}/share/cmake/Torch/TorchConfig.cmake)
        get_filename_component(folder ${folder} ABSOLUTE)
        set(${out} ${folder} PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
  if(LOCKSTEP_TORCH_RECORDED) # by the installed package
    set(${out} ${LOCKSTEP_TORCH_RECORDED} PARENT_SCOPE)
    return()
  endif()
  set(${out} "" PARENT_SCOPE)
  set(pins ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../script/deps/libtorch.txt)
  if(LOCKSTEP_DEPS AND EXISTS ${pins}) # script/bootstrap's: the folder's name says what is pinned
    file(SHA256 ${pins} checksum)
    string(SUBSTRING ${checksum} 0 12 checksum)
    if(EXISTS ${LOCKSTEP_DEPS}/libtorch-${checksum})
      set(${out} ${LOCKSTEP_DEPS}/libtorch-${checksum}/torch PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(lockstep_add_torch folder)
  add_library(Lockstep::torch INTERFACE IMPORTED GLOBAL)
  set(libraries ${folder}/lib/libtorch_cpu.so ${folder}/lib/libc10.so)
  foreach(library torch_cuda c10_cuda) # loading them is what makes GPUs known to libtorch
    if(EXISTS ${folder}/lib/lib${library}.so)
      list(APPEND libraries ${folder}/lib/lib${library}.so)
    endif()
  endforeach()
  # The CUDA runtime that the package registry's CUDA builds load also on machines without a GPU stands beside them.
  file(GLOB cuda_folders ${folder}/../nvidia/cu*/lib ${folder}/../nvidia/cuda_runtime/lib ${folder}/../nvidia/cuda_cupti/lib)
  set(search "")
  foreach(library_folder ${folder}/lib ${cuda_folders})
    get_filename_component(library_folder ${library_folder} ABSOLUTE)
    list(APPEND search -Wl,-rpath,${library_folder})
  endforeach()
  set_target_properties(
    Lockstep::torch
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
               INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
               INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--no-as-needed;${libraries};-Wl,--pop-state"
               INTERFACE_LINK_OPTIONS "${search}"
               INTERFACE_COMPILE_FEATURES cxx_std_20)
endfunction()

lockstep_find_torch(_lockstep_torch)
if(_lockstep_torch)
  lockstep_judge_torch(${_lockstep_torch} _lockstep_torch_error)
else()
  set(_lockstep_torch_error "no libtorch found")
endif()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE) # script/bootstrap asks
  if(NOT _lockstep_torch)
    set(verdict "none")
  elseif(_lockstep_torch_error)
    set(verdict "error: ${_lockstep_torch_error}")
  else()
    set(verdict "found ${_lockstep_torch}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${verdict}")
elseif(NOT _lockstep_torch_error)
  lockstep_add_torch(${_lockstep_torch})
elseif(NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "Lockstep") # there, LockstepConfig.cmake reports it
  message(FATAL_ERROR "Lockstep: ${_lockstep_torch_error}. Run script/bootstrap, set LOCKSTEP_TORCH to a libtorch "
                      "folder, or configure with -DLOCKSTEP_TRAIN=OFF.")
endif()
