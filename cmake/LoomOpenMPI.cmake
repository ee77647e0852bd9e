# Finds Open MPI with its internal headers (Debian: libopenmpi-dev, from 5.0 on libpmix-dev too). Sets
#   LOOM_HAVE_OPENMPI, LOOM_OPENMPI_VERSION; if not found LOOM_OPENMPI_WHY_NOT
#   LOOM_OPENMPI_COMPONENT_DIR, LOOM_OPENMPI_DATA_DIR  where Open MPI looks for components and help texts
#   LOOM_MPIEXEC, LOOM_OMPI_INFO                       its programs: those beside LOOM_MPICC, if there are any
#   loom::openmpi  headers and libraries of its internals, for the plugin
#   loom::mpi      the MPI library, for programs

# Other MPIs have an mpicc, too.
function(loom_is_openmpi result program)
  execute_process(COMMAND ${program} --showme:incdirs OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(LOOM_MPICC NAMES mpicc.openmpi mpicc NAMES_PER_DIR VALIDATOR loom_is_openmpi
             DOC "Open MPI's compiler wrapper, mpicc: the first on PATH, or that of another Open MPI")

# loom_find_beside(VARIABLE DIR NAMES...): a program of the Open MPI whose mpicc lies in DIR. What was found for another mpicc
# is looked for again.
function(loom_find_beside variable dir)
  if(DEFINED ${variable}_FOUND_FOR)
    list(GET ${variable}_FOUND_FOR 0 mpicc)
    list(GET ${variable}_FOUND_FOR 1 found)
    if(NOT mpicc STREQUAL LOOM_MPICC AND found STREQUAL "${${variable}}")
      unset(${variable} CACHE)
    endif()
  endif()
  find_program(${variable} NAMES ${ARGN} PATHS ${dir} NO_DEFAULT_PATH)
  find_program(${variable} NAMES ${ARGN} NAMES_PER_DIR)
  set(${variable}_FOUND_FOR "${LOOM_MPICC};${${variable}}" CACHE INTERNAL "")
endfunction()

# The wrapper and ompi_info describe the installation; what they write to stderr does not matter here.
macro(loom_ask_openmpi out program)
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_VARIABLE ${out} ERROR_QUIET RESULT_VARIABLE _status
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT _status EQUAL 0)
    set(LOOM_OPENMPI_WHY_NOT "'${program} ${ARGN}' failed; is it Open MPI's?")
  endif()
endmacro()

function(loom_find_openmpi)
  if(NOT LOOM_MPICC)
    set(LOOM_OPENMPI_WHY_NOT "there is no mpicc of Open MPI on PATH; install Open MPI or set LOOM_MPICC" PARENT_SCOPE)
    return()
  endif()

  set(LOOM_OPENMPI_WHY_NOT "")
  cmake_path(GET LOOM_MPICC PARENT_PATH bin_dir)
  loom_find_beside(LOOM_OMPI_INFO ${bin_dir} ompi_info)
  loom_find_beside(LOOM_MPIEXEC ${bin_dir} mpirun.openmpi mpirun)
  loom_ask_openmpi(include_dirs ${LOOM_MPICC} --showme:incdirs)
  loom_ask_openmpi(library_dirs ${LOOM_MPICC} --showme:libdirs)
  loom_ask_openmpi(library_names ${LOOM_MPICC} --showme:libs)
  loom_ask_openmpi(component_dir ${LOOM_OMPI_INFO} --path pkglibdir --parsable)
  loom_ask_openmpi(data_dir ${LOOM_OMPI_INFO} --path pkgdatadir --parsable)
  string(REGEX REPLACE "^.*path:pkglibdir:" "" component_dir "${component_dir}")
  string(REGEX REPLACE "^.*path:pkgdatadir:" "" data_dir "${data_dir}")
  separate_arguments(include_dirs UNIX_COMMAND "${include_dirs}")
  separate_arguments(library_dirs UNIX_COMMAND "${library_dirs}")
  separate_arguments(library_names UNIX_COMMAND "${library_names}")
  if(LOOM_OPENMPI_WHY_NOT)
    set(LOOM_OPENMPI_WHY_NOT "${LOOM_OPENMPI_WHY_NOT}" PARENT_SCOPE)
    return()
  endif()

  find_file(mpi_h mpi.h PATHS ${include_dirs} NO_DEFAULT_PATH NO_CACHE)
  if(NOT mpi_h)
    set(LOOM_OPENMPI_WHY_NOT "there is no mpi.h in '${include_dirs}', where ${LOOM_MPICC} looks for it" PARENT_SCOPE)
    return()
  endif()
  set(version "")
  foreach(part IN ITEMS MAJOR MINOR RELEASE)
    file(STRINGS ${mpi_h} line REGEX "^#define OMPI_${part}_VERSION ")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND version ${number})
  endforeach()
  list(JOIN version "." version)
  set(LOOM_OPENMPI_VERSION ${version} PARENT_SCOPE)
  if(version VERSION_LESS 4.1 OR version VERSION_GREATER_EQUAL 7)
    set(LOOM_OPENMPI_WHY_NOT "Open MPI ${version} is none of the series 4.1, 5.0 and 6.0" PARENT_SCOPE)
    return()
  endif()

  # The wrapper's libraries serve programs. The internals are in them and in libopen-pal, which it does not name.
  set(libraries "")
  foreach(name IN LISTS library_names ITEMS open-pal)
    unset(library)
    find_library(library ${name} HINTS ${library_dirs} NO_CACHE)
    if(NOT library)
      set(LOOM_OPENMPI_WHY_NOT "lib${name} was not found in ${library_dirs}" PARENT_SCOPE)
      return()
    endif()
    list(APPEND libraries ${library})
  endforeach()
  set(program_libraries ${libraries})
  list(POP_BACK program_libraries)

  # From 5.0 on the internal headers include pmix.h. The stubs come last: an installed header goes first.
  find_package(PkgConfig QUIET)
  pkg_check_modules(LOOM_PMIX QUIET pmix)
  set(internal_include_dirs ${include_dirs} ${LOOM_PMIX_INCLUDE_DIRS}
      ${PROJECT_SOURCE_DIR}/component/mca/ompi_stubs)
  # Headers may be installed after they were missed, and others stand in other folders.
  set(compiled LOOM_OPENMPI_${version}_HEADERS_COMPILE)
  if(NOT ${compiled} OR NOT "${LOOM_OPENMPI_HEADERS_IN}" STREQUAL "${internal_include_dirs}")
    unset(${compiled} CACHE)
  endif()
  set(LOOM_OPENMPI_HEADERS_IN "${internal_include_dirs}" CACHE INTERNAL "")
  include(CheckCSourceCompiles)
  include(CMakePushCheckState)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_INCLUDES ${internal_include_dirs})
  set(CMAKE_REQUIRED_QUIET ON)
  check_c_source_compiles("#include \"ompi_config.h\"
    #include \"ompi/mca/coll/coll.h\"
    #include \"ompi/op/op.h\"
    int main(void) { return 0; }" ${compiled})
  cmake_pop_check_state()
  if(NOT ${compiled})
    set(LOOM_OPENMPI_WHY_NOT "the internal headers of Open MPI ${version} in ${include_dirs} are missing or do not \
compile (it must be configured --with-devel-headers; 5.0 and later need PMIx's headers too)" PARENT_SCOPE)
    return()
  endif()

  add_library(loom_openmpi INTERFACE)
  add_library(loom::openmpi ALIAS loom_openmpi)
  target_include_directories(loom_openmpi SYSTEM INTERFACE ${internal_include_dirs})
  target_link_libraries(loom_openmpi INTERFACE ${libraries})

  add_library(loom_mpi INTERFACE)
  add_library(loom::mpi ALIAS loom_mpi)
  target_include_directories(loom_mpi SYSTEM INTERFACE ${include_dirs})
  target_compile_definitions(loom_mpi INTERFACE OMPI_SKIP_MPICXX)  # 4.1's mpi.h would ask for the old C++ bindings
  target_link_libraries(loom_mpi INTERFACE ${program_libraries})

  set(LOOM_OPENMPI_COMPONENT_DIR ${component_dir} PARENT_SCOPE)
  set(LOOM_OPENMPI_DATA_DIR ${data_dir} PARENT_SCOPE)
  set(LOOM_HAVE_OPENMPI ON PARENT_SCOPE)
endfunction()

set(LOOM_HAVE_OPENMPI OFF)
loom_find_openmpi()
