# Options in three states: AUTO uses what is there, ON requires it, OFF leaves it out.
macro(loom_option name text)
  set(${name} AUTO CACHE STRING "${text}: AUTO, ON or OFF")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name} is '${${name}}'; it takes AUTO, ON or OFF")
  endif()
endmacro()

loom_option(LOOM_CUDA "CUDA backend")
loom_option(LOOM_OPENMPI "Open MPI component and example programs")
set(LOOM_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")
option(LOOM_FUZZ "Build the libFuzzer programs of tests/topo/fuzz (clang)" OFF)
option(LOOM_WERROR "Treat compiler warnings as errors" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# The plugin stands alone in lib/, so that the folder can be named in mca_base_component_path.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/archive)
