# Options: AUTO uses what is there, ON requires it, OFF leaves it out; some take more.
macro(loom_option name text)
  set(_values AUTO ON OFF ${ARGN})
  list(JOIN _values ", " _known)
  set(${name} AUTO CACHE STRING "${text}: ${_known}")
  set_property(CACHE ${name} PROPERTY STRINGS ${_values})
  if(NOT ${name} IN_LIST _values)
    message(FATAL_ERROR "${name} is '${${name}}'; it takes one of: ${_known}")
  endif()
endmacro()

loom_option(LOOM_CUDA "Kernels for GPUs, by nvcc and by clang; ON requires one of them" nvcc clang)
loom_option(LOOM_OPENMPI "Open MPI component and example programs")
set(LOOM_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")
option(LOOM_COVERAGE "Count which lines and branches run (g++; scripts/coverage prints them)" OFF)
option(LOOM_FUZZ "Build the libFuzzer programs, fuzz_* (clang)" OFF)
option(LOOM_WERROR "Treat compiler warnings as errors" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# The plugin stands alone in lib/, so that the folder can be named in mca_base_component_path.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/archive)
