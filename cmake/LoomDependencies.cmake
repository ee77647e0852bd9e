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

set(LOOM_CUDA_ARCHITECTURES "80;90;100" CACHE STRING
    "GPU architectures that kernels are compiled for; later ones take the last one's PTX")
if(LOOM_CUDA STREQUAL "OFF")
  set(LOOM_HAVE_CUDA OFF)
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(LOOM_HAVE_CUDA ON)
    # Only the compiler is used, to make images of kernels (device/cuda/images.cmake): nothing is linked.
    set(LOOM_NVCC ${CMAKE_CUDA_COMPILER})
  elseif(LOOM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOOM_CUDA=ON, but no CUDA compiler was found; put nvcc on PATH or set CUDACXX")
  else()
    set(LOOM_HAVE_CUDA OFF)
  endif()
endif()

if(LOOM_OPENMPI STREQUAL "OFF")
  set(LOOM_HAVE_OPENMPI OFF)
else()
  include(LoomOpenMPI)  # sets LOOM_HAVE_OPENMPI and the target loom::openmpi
  if(LOOM_OPENMPI STREQUAL "ON" AND NOT LOOM_HAVE_OPENMPI)
    message(FATAL_ERROR "LOOM_OPENMPI=ON, but: ${LOOM_OPENMPI_WHY_NOT}")
  endif()
endif()
message(STATUS "loom: CUDA ${LOOM_HAVE_CUDA}, Open MPI ${LOOM_HAVE_OPENMPI} ${LOOM_OPENMPI_VERSION}")
