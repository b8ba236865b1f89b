# The table of algorithms that ships is data; the library carries it, as ${default_tuning_source}.
set(tuning ${PROJECT_SOURCE_DIR}/lockstep/schedule/default_tuning.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tuning})
file(READ ${tuning} LOCKSTEP_DEFAULT_TUNING)
set(default_tuning_source ${PROJECT_BINARY_DIR}/default_tuning.cpp)
configure_file(${PROJECT_SOURCE_DIR}/lockstep/schedule/default_tuning.cpp.in ${default_tuning_source} @ONLY)
