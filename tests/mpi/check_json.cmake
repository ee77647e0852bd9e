# cmake -D FILE=file -P check_json.cmake -- the file has what loom_bench --json writes by
# mpi_examples/README.md.
file(READ ${FILE} text)
foreach(path "program" "format" "environment;mpi_library" "environment;component_path" "environment;loom"
             "environment;ranks" "environment;hosts;0;name" "options;collective" "results;0;size_bytes"
             "results;0;count" "results;0;type" "results;0;op" "results;0;iterations" "results;0;calls_per_iteration"
             "results;0;measured;p50_us" "results;0;measured;algbw" "results;0;measured;busbw"
             "results;0;measured;carried_by_loom" "results;0;fallback;p50_us" "results;0;ratio_p50")
  string(JSON value ERROR_VARIABLE error GET "${text}" ${path})
  if(error)
    message(FATAL_ERROR "${FILE} has no ${path}: ${error}")
  endif()
endforeach()
string(JSON wrong GET "${text}" wrong)
if(NOT wrong EQUAL 0)
  message(FATAL_ERROR "${FILE}: wrong is ${wrong}")
endif()
