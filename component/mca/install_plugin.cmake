# Run by "cmake --install". CMakeLists.txt sets the variables in small letters, and says what goes where.
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/install_folders.cmake)  # again, where this folder alone is installed
set(prefix ${home_plugin_prefix})
if(NOT prefix AND NOT CMAKE_INSTALL_PREFIX STREQUAL /usr/local)
  set(prefix ${CMAKE_INSTALL_PREFIX})
endif()
if(plugin_dir)
  set(component_dir ${plugin_dir})
elseif(prefix)
  set(component_dir ${prefix}/components)
  set(data_dir ${prefix}/share/openmpi)
endif()
file(INSTALL ${plugin} DESTINATION ${component_dir} TYPE MODULE)  # file(INSTALL) adds DESTDIR itself
file(INSTALL ${help} DESTINATION ${data_dir})
