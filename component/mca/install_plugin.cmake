# Run by "cmake --install". CMakeLists.txt sets the variables in small letters, and says what goes where.
execute_process(COMMAND id -u OUTPUT_VARIABLE user_id OUTPUT_STRIP_TRAILING_WHITESPACE)
set(prefix "")
if(NOT CMAKE_INSTALL_PREFIX STREQUAL /usr/local)
  set(prefix ${CMAKE_INSTALL_PREFIX})
elseif(NOT user_id STREQUAL 0 AND "$ENV{DESTDIR}" STREQUAL "")
  set(prefix $ENV{HOME}/.openmpi)
endif()
if(prefix)
  set(component_dir ${prefix}/components)
  set(data_dir ${prefix}/share/openmpi)
endif()
file(INSTALL ${plugin} DESTINATION ${component_dir} TYPE MODULE)  # file(INSTALL) adds DESTDIR itself
file(INSTALL ${help} DESTINATION ${data_dir})
