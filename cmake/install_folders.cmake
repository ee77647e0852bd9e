# Decides, when "cmake --install" runs, which folders are filled. A user who is not root and names no prefix (CMake's default is
# /usr/local) gets ~/.local for programs and ~/.openmpi for the plugin.
execute_process(COMMAND id -u OUTPUT_VARIABLE user_id OUTPUT_STRIP_TRAILING_WHITESPACE)
if(CMAKE_INSTALL_PREFIX STREQUAL /usr/local AND NOT user_id STREQUAL 0 AND "$ENV{DESTDIR}" STREQUAL "")
  if("$ENV{HOME}" STREQUAL "")
    message(FATAL_ERROR "HOME is not set: name a folder with --prefix")
  endif()
  set(home_plugin_prefix $ENV{HOME}/.openmpi)
  set(CMAKE_INSTALL_PREFIX $ENV{HOME}/.local)
endif()
