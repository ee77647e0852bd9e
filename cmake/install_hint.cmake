# Run by "cmake --install", at its end: what to type for mpirun to find the plugin. Wants component_dir, where that is now,
# and openmpi_version and openmpi_component_dir of the Open MPI that it was built for; packages have plugin_dir, and know.
if(plugin_dir OR NOT "$ENV{DESTDIR}" STREQUAL "")
  return()
endif()
# As a shell takes it.
function(shell_word result text)
  if(text MATCHES "[^A-Za-z0-9_./:+-]")
    string(REPLACE "'" "'\\''" text "${text}")
    set(text "'${text}'")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()
set(path "${component_dir}")
set(options "")
if(openmpi_version VERSION_GREATER_EQUAL 5)
  # mpirun 5.0 may replace the component path of its ranks by its own, even where Open MPI looks there by itself. PMIx reads the
  # same path, and remarks on what it cannot use there.
  shell_word(path "${path}")
  set(options "--mca mca_base_component_path ${path} --pmixmca mca_base_component_show_load_errors none ")
elseif(NOT component_dir STREQUAL openmpi_component_dir AND NOT component_dir STREQUAL "$ENV{HOME}/.openmpi/components")
  string(APPEND path ":${openmpi_component_dir}")  # its own components are there, and not in the library
  shell_word(path "${path}")
  set(options "--mca mca_base_component_path ${path} ")
endif()
message(STATUS "Run programs with loom: mpirun ${options}--mca coll_loom_enable 1 ./app")
if(options)
  message(STATUS "Without the path they may run without loom, and nothing says so. "
    "OMPI_MCA_mca_base_component_path=${path} in the environment does the same.")
  if(openmpi_version VERSION_GREATER_EQUAL 5)
    message(STATUS "(Then PMIX_MCA_mca_base_component_show_load_errors=none keeps PMIx quiet.)")
  endif()
endif()
string(FIND ":$ENV{PATH}:" ":${CMAKE_INSTALL_PREFIX}/bin:" place)
if(place LESS 0)
  message(STATUS "loom and loom_bench are in ${CMAKE_INSTALL_PREFIX}/bin, which is not on PATH.")
endif()
