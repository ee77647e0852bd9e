# cmake -D OMPI_INFO=ompi_info -P check_ompi_info.cmake: it finds the plugin, and shows what a user can set.
execute_process(COMMAND ${OMPI_INFO} --param coll loom --level 9 OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
foreach(expected IN ITEMS
    "\"coll_loom_enable\" .current value: \"?false\"?, [^\n]*level: 1 user/basic, type: bool"
    "\"coll_loom_verbose\" .current value: \"?0\"?, [^\n]*type: int"
    "\"coll_loom_timeout\" .current value: \"?0[.0]*\"?, [^\n]*type: double"
    "\"coll_loom_include\" .current value: \"\"?, [^\n]*type: string"
    "\"coll_loom_exclude\" .current value: \"\"?, [^\n]*type: string"
    "\"coll_loom_check\" .current value: \"?false\"?, [^\n]*type: bool"
    "\"coll_loom_memory\" .current value: \"auto\"?, [^\n]*type: string"
    "\"coll_loom_memory_limit\" .current value: \"?268435456\"?, [^\n]*type: unsigned_long_long"
    "\"coll_loom_rendezvous\" .current value: \"auto\", [^\n]*type: int"
    "\"coll_loom_priority\" .current value: \"?90\"?, [^\n]*level: 6 tuner/all, type: int")
  if(NOT text MATCHES "${expected}")
    message(FATAL_ERROR "no match for ${expected} in:\n${text}")
  endif()
endforeach()

# At the levels for users, only what these may need.
execute_process(COMMAND ${OMPI_INFO} --param coll loom --level 3 OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
if(NOT text MATCHES "coll_loom_timeout" OR text MATCHES "parameter \"coll_loom_priority")
  message(FATAL_ERROR "level 3 should have coll_loom_timeout, but not coll_loom_priority:\n${text}")
endif()
