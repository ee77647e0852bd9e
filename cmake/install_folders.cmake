# Run first by "cmake --install": whose folders it fills. A user who is not root and names no prefix gets
# ~/.local for programs and ~/.openmpi for the plugin.
execute_process(COMMAND id -u OUTPUT_VARIABLE user_id OUTPUT_STRIP_TRAILING_WHITESPACE)
if(CMAKE_INSTALL_PREFIX STREQUAL /usr/local AND NOT user_id STREQUAL 0 AND "$ENV{DESTDIR}" STREQUAL "")
  set(home_plugin_prefix $ENV{HOME}/.openmpi)
  set(CMAKE_INSTALL_PREFIX $ENV{HOME}/.local)
endif()
