# loom_add_mpi_test(NAME name PROGRAM target RANKS n... [ARGS arg...] [MPIRUN arg...] [CHECK command...] [TIMEOUT s]
#                   [SERIAL])
#
# Adds a test per number of ranks, name_<n>Ranks with the label `mpi`, that runs the program under mpirun with the
# plugin of this build loaded and enabled: scripts/loom-mpirun knows how, for each Open MPI series and for root.
#   MPIRUN  further arguments of mpirun
#   CHECK   a command that gets the whole mpirun command as its last arguments and judges it
#   SERIAL  no other test at the same time, as for tests that look at what a job leaves behind
function(loom_add_mpi_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL" "NAME;PROGRAM;TIMEOUT" "RANKS;ARGS;MPIRUN;CHECK")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    set(test ${arg_NAME}_${ranks}Ranks)
    # Not bound: tests that run at the same time would all bind their first rank to the first core.
    add_test(NAME ${test} COMMAND ${arg_CHECK}
      ${PROJECT_SOURCE_DIR}/scripts/loom-mpirun --build ${PROJECT_BINARY_DIR}
      --oversubscribe --bind-to none -n ${ranks} ${arg_MPIRUN} $<TARGET_FILE:${arg_PROGRAM}> ${arg_ARGS})
    set_tests_properties(${test} PROPERTIES LABELS mpi TIMEOUT ${arg_TIMEOUT} PROCESSORS ${ranks})
    if(arg_SERIAL)
      set_tests_properties(${test} PROPERTIES RUN_SERIAL ON)
    endif()
  endforeach()
endfunction()
