# cmake --install: headers, libraries, the tool, and the package that find_package(Lockstep) finds.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
foreach(component core train)
  if(TARGET lockstep_${component})
    set_target_properties(lockstep_${component} PROPERTIES EXPORT_NAME ${component} INSTALL_RPATH "$ORIGIN")
    install(TARGETS lockstep_${component} EXPORT Lockstep_${component})
    install(EXPORT Lockstep_${component} NAMESPACE Lockstep:: DESTINATION ${package_folder})
  endif()
endforeach()
if(TARGET lockstep)
  install(TARGETS lockstep)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN "*_test.h" EXCLUDE PATTERN "*_inl.h" EXCLUDE)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/Torch.cmake DESTINATION ${package_folder})
