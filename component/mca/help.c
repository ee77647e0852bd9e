/* Messages to the user, from help-coll-loom.txt. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, asprintf */
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "component/mca/coll_loom.h"

#define FILE_NAME "help-coll-loom.txt"

#if COLL_LOOM_HAVE_SHOW_HELP

/* An installed help text lies where Open MPI looks for it. In a build folder and in ~/.openmpi it lies in
 * share/openmpi, beside the plugin's folder. */
void coll_loom_find_help(void) {
  Dl_info plugin;
  char dir[PATH_MAX], file[PATH_MAX + sizeof FILE_NAME];
  if (dladdr(&mca_coll_loom_component, &plugin) == 0) return;
  const char* slash = strrchr(plugin.dli_fname, '/');
  const int length = slash == NULL ? 0 : (int)(slash - plugin.dli_fname);
  const int written = snprintf(dir, sizeof dir, "%.*s/../share/openmpi", length, plugin.dli_fname);
  if (slash == NULL || written < 0 || (size_t)written >= sizeof dir) return;
  snprintf(file, sizeof file, "%s/" FILE_NAME, dir);
  if (access(file, R_OK) == 0) opal_show_help_add_dir(dir);
}

void coll_loom_help(const char* topic, const char* where, const char* cause) {
  /* Without a file descriptor nobody reads the text, and the cause would be lost. */
  const int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (spare < 0 && (errno == EMFILE || errno == ENFILE)) {
    opal_output(0, "coll/loom: %s: %s: %s (no file descriptor is left to read more about it)", topic, where,
                cause);
    return;
  }
  if (spare >= 0) close(spare);
  opal_show_help(FILE_NAME, topic, true, where, cause);
}

#else

/* The file's text, compiled in. */
static const char help_file[] =
#include "help-coll-loom.inc"
    ;

void coll_loom_find_help(void) {}

void coll_loom_help(const char* topic, const char* where, const char* cause) {
  static const char line[] = "--------------------------------------------------------------------------\n";
  char heading[64], format[2048];
  snprintf(heading, sizeof heading, "\n[%s]\n", topic);
  const char* begin = strstr(help_file, heading);
  if (begin == NULL) return;
  begin += strlen(heading);
  const char* end = strstr(begin, "\n[");
  snprintf(format, sizeof format, "%s%.*s%s", line, end == NULL ? (int)strlen(begin) : (int)(end + 1 - begin),
           begin, line);

  /* In one piece, so that the lines of several ranks do not mix. */
  char* text;
  if (asprintf(&text, format, where, cause) < 0) return;
  fputs(text, stderr);
  free(text);
}

#endif
