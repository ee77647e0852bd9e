# cmake -D PRINT=loom_parameters -D PAGE=docs/parameters.md -D BUILD=dir -P check_parameters_page.cmake: the page is
# what the tables say.
execute_process(COMMAND ${PRINT} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
file(READ ${PAGE} page)
if(NOT page STREQUAL printed)
  message(FATAL_ERROR "${PAGE} is out of date. Write it anew: cmake --build ${BUILD} --target parameters_page")
endif()
