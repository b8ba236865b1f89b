# The kernels of lockstep/backend/device_arena/kernel.cu, compiled by nvcc where there is one, as a source that holds them: for the
# usual GPUs, and as PTX for those to come. Sets device_kernels_source. Without nvcc they are empty, and ranks that share a GPU go
# through main memory. Builds for sanitizers have none either: their tests run over a stand-in for the driver, which brings them.
find_program(LOCKSTEP_NVCC nvcc PATHS /usr/local/cuda/bin DOC "CUDA's compiler, for the kernels of ranks that share a GPU")
set(LOCKSTEP_CUDA_ARCHITECTURES "80;90;100;120" CACHE STRING "GPUs that Lockstep's kernels are compiled for, beside PTX for all from 7.5 on")

set(device_arena ${PROJECT_SOURCE_DIR}/lockstep/backend/device_arena)
set(device_kernels_source ${PROJECT_BINARY_DIR}/device_kernels.cpp)
set(device_kernels ${PROJECT_BINARY_DIR}/device_kernels.fatbin)
set(has_kernels OFF)
if(LOCKSTEP_NVCC AND NOT LOCKSTEP_SANITIZE)
  # CUDA 11 knows no C++20, and an older CUDA not the newest GPUs: those take the PTX.
  execute_process(COMMAND ${LOCKSTEP_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  execute_process(COMMAND ${LOCKSTEP_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX REPLACE ".*release ([0-9]+)\\..*" "\\1" version "${version}")
  if(version GREATER_EQUAL 12)
    set(has_kernels ON)
  else()
    message(STATUS "Lockstep: ${LOCKSTEP_NVCC} is older than CUDA 12: ranks that share a GPU will go through main memory")
  endif()
endif()
if(has_kernels)
  set(codes "")
  foreach(architecture ${LOCKSTEP_CUDA_ARCHITECTURES})
    if(known MATCHES "sm_${architecture}\n")
      list(APPEND codes -gencode arch=compute_${architecture},code=sm_${architecture})
    endif()
  endforeach()
  add_custom_command(
    OUTPUT ${device_kernels}
    COMMAND ${LOCKSTEP_NVCC} -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -Xfatbin=-compress-all --threads 0 -I${PROJECT_SOURCE_DIR} ${codes} -gencode
            arch=compute_75,code=compute_75 -fatbin -o ${device_kernels} ${device_arena}/kernel.cu
    DEPENDS ${device_arena}/kernel.cu ${device_arena}/kernel.h ${device_arena}/update.h ${PROJECT_SOURCE_DIR}/lockstep/base/half.h
    COMMENT "Compiling kernels for GPUs"
    VERBATIM)
  set(included ".incbin \\\"${device_kernels}\\\"\\n")
else()
  set(included "")
endif()
file(CONFIGURE OUTPUT ${device_kernels_source} CONTENT [[
// Made by cmake/DeviceKernels.cmake.
asm(".section .rodata\n.globl lockstep_device_kernels, lockstep_device_kernels_bytes\n"
    ".balign 64\nlockstep_device_kernels:\n@included@0:\n"
    ".balign 8\nlockstep_device_kernels_bytes:\n.quad 0b - lockstep_device_kernels\n.previous\n");
]] @ONLY)
if(has_kernels)
  set_source_files_properties(${device_kernels_source} PROPERTIES OBJECT_DEPENDS ${device_kernels})
endif()
