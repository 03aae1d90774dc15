# SPDX-License-Identifier: Apache-2.0
# The library, its public headers and a package that find_package(Strata) finds. tests/consumer builds against it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(strata_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Strata)

install(TARGETS strata EXPORT StrataTargets)
install(TARGETS strata_command)
install(DIRECTORY strata/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata
  FILES_MATCHING PATTERN "*.h"
  PATTERN "testing*.h" EXCLUDE
  PATTERN "*-inl.h" EXCLUDE
  REGEX "comm/mpi/(mpi_group|mpi_process|polling|requests|shared_counter)\\.h" EXCLUDE
  PATTERN "kernels/cpu" EXCLUDE
  PATTERN "kernels/ref" EXCLUDE)
install(EXPORT StrataTargets NAMESPACE Strata:: DESTINATION ${strata_package_dir})

configure_package_config_file(cmake/StrataConfig.cmake.in ${CMAKE_BINARY_DIR}/StrataConfig.cmake
  INSTALL_DESTINATION ${strata_package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/StrataConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/StrataConfig.cmake ${CMAKE_BINARY_DIR}/StrataConfigVersion.cmake
  DESTINATION ${strata_package_dir})
