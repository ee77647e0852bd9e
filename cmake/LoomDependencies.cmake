# All from the distribution's packages; nothing is downloaded.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
find_package(fmt REQUIRED)
# Static, so that the plugin needs no library that a compute node may lack; Debian's is position-independent.
find_package(pugixml REQUIRED)
if(TARGET pugixml::static)
  set(LOOM_PUGIXML pugixml::static)
else()
  set(LOOM_PUGIXML pugixml::pugixml)
endif()
# Only its headers are used (device/reduce/reduce.cpp).
find_path(LOOM_HIGHWAY_INCLUDE_DIR hwy/highway.h REQUIRED)

include(LoomKernels)

if(LOOM_OPENMPI STREQUAL "OFF")
  set(LOOM_HAVE_OPENMPI OFF)
else()
  include(LoomOpenMPI)  # sets LOOM_HAVE_OPENMPI and the target loom::openmpi
  if(NOT LOOM_HAVE_OPENMPI)
    if(LOOM_OPENMPI STREQUAL "ON")
      message(FATAL_ERROR "LOOM_OPENMPI=ON, but: ${LOOM_OPENMPI_WHY_NOT}")
    endif()
    message(WARNING "no plugin is built: ${LOOM_OPENMPI_WHY_NOT}. LOOM_OPENMPI=OFF leaves it out without this warning.")
  endif()
endif()
message(STATUS "loom: Open MPI ${LOOM_HAVE_OPENMPI} ${LOOM_OPENMPI_VERSION}")
