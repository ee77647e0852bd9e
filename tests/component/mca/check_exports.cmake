# cmake -D NM=nm -D PLUGIN=file -P check_exports.cmake
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${PLUGIN} OUTPUT_VARIABLE symbols
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES "^mca_coll_loom_component [^\n]*$")
  message(FATAL_ERROR "the plugin should export mca_coll_loom_component alone, but exports:\n${symbols}")
endif()
