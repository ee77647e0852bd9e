# cmake -D READELF=readelf -D PLUGIN=file -P check_needed.cmake: the plugin loads where there is no GPU driver.
execute_process(COMMAND ${READELF} -d ${PLUGIN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
if(NOT text MATCHES "lib(open_)?mpi\\.so")
  message(FATAL_ERROR "this is no list of libraries:\n${text}")
endif()
if(text MATCHES "libcuda|libnvidia")
  message(FATAL_ERROR "the plugin is linked to a driver:\n${text}")
endif()
