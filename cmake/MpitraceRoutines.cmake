# What mpitrace/routines.txt becomes: files to include, in ${mpitrace_generated}, made by the target mpitrace_generated.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(mpitrace_generated ${PROJECT_BINARY_DIR}/mpitrace/generated)
set(files ${mpitrace_generated}/routine_list.inc ${mpitrace_generated}/c_functions.inc ${mpitrace_generated}/fortran_functions.inc
          ${mpitrace_generated}/agreement.inc)
add_custom_command(
  OUTPUT ${files}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/mpitrace/generate.py ${PROJECT_SOURCE_DIR}/mpitrace/routines.txt ${mpitrace_generated}
  DEPENDS ${PROJECT_SOURCE_DIR}/mpitrace/generate.py ${PROJECT_SOURCE_DIR}/mpitrace/routines.txt)
add_custom_target(mpitrace_generated DEPENDS ${files})
