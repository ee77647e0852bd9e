/* Makes the tables of variables.c and counters.c known to Open MPI. */
#include <stdatomic.h>
#include <stdlib.h>

#include "component/mca/coll_loom.h"
#include "component/mca/counters.h"

struct coll_loom_variables coll_loom_variables;
static char corrected[2048]; /* the report about variables that are out of range */
static atomic_bool complained;

/* The words of an enumeration, which Open MPI copies; NULL if there is no memory, or for another type. */
static mca_base_var_enum_t* make_enum(const struct coll_loom_variable* variable) {
  if (variable->type != COLL_LOOM_ENUM) return NULL;
  size_t n = 0;
  while (variable->words[n].name != NULL) ++n;
  mca_base_var_enum_value_t values[n + 1];
  for (size_t i = 0; i <= n; ++i)
    values[i] = (mca_base_var_enum_value_t){variable->words[i].value, variable->words[i].name};
  mca_base_var_enum_t* made = NULL;
  return mca_base_var_enum_create(variable->name, values, &made) == OPAL_SUCCESS ? made : NULL;
}

static int register_variable(const struct coll_loom_variable* variable) {
  static const mca_base_var_type_t types[] = {
      [COLL_LOOM_BOOL] = MCA_BASE_VAR_TYPE_BOOL,      [COLL_LOOM_INT] = MCA_BASE_VAR_TYPE_INT,
      [COLL_LOOM_SECONDS] = MCA_BASE_VAR_TYPE_DOUBLE, [COLL_LOOM_SIZE] = MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG,
      [COLL_LOOM_STRING] = MCA_BASE_VAR_TYPE_STRING,  [COLL_LOOM_ENUM] = MCA_BASE_VAR_TYPE_INT};
  mca_base_var_enum_t* words = make_enum(variable);
  if (words == NULL && variable->type == COLL_LOOM_ENUM) return OMPI_ERR_OUT_OF_RESOURCE;
  coll_loom_set_default(variable, &coll_loom_variables);
  char help[1024];
  coll_loom_write_help(variable, help, sizeof help);
  const int index = mca_base_component_var_register(
      &mca_coll_loom_component.collm_version, variable->name, help, types[variable->type], words, 0,
      variable->settable ? MCA_BASE_VAR_FLAG_SETTABLE : 0,
      (mca_base_var_info_lvl_t)(OPAL_INFO_LVL_1 + variable->level - 1),
      variable->settable ? MCA_BASE_VAR_SCOPE_ALL : MCA_BASE_VAR_SCOPE_READONLY,
      (char*)&coll_loom_variables + variable->at);
  if (words != NULL) OBJ_RELEASE(words);
  return index;
}

_Static_assert(sizeof(uint64_t) == sizeof(unsigned long long), "MPI_T reads the counters as they are");

static int read_counter(const mca_base_pvar_t* variable, void* value, void* object) {
  (void)object;
  coll_loom_read_counter(variable->ctx, value);
  return OMPI_SUCCESS;
}

/* Open MPI asks for the number of elements when it makes a handle. */
static int count_elements(mca_base_pvar_t* variable, mca_base_pvar_event_t event, void* object, int* count) {
  (void)object;
  if (event == MCA_BASE_PVAR_HANDLE_BIND) *count = coll_loom_counter_elements(variable->ctx);
  return OMPI_SUCCESS;
}

static int register_counter(const struct coll_loom_counter* counter) {
  const size_t bytes = coll_loom_describe_counter(counter, NULL, 0) + 1;
  char* const description = malloc(bytes);
  if (description == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
  coll_loom_describe_counter(counter, description, bytes);
  const int index = mca_base_component_pvar_register(
      &mca_coll_loom_component.collm_version, counter->name, description, OPAL_INFO_LVL_4,
      MCA_BASE_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
      MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_counter, NULL, count_elements,
      (void*)counter);
  free(description); /* Open MPI has copied it */
  return index;
}

int coll_loom_register(void) {
  for (const struct coll_loom_variable* variable = coll_loom_variable_table; variable->name; ++variable) {
    const int index = register_variable(variable);
    if (index < 0) return index;
  }
  for (const struct coll_loom_counter* counter = coll_loom_counter_table; counter->name; ++counter) {
    const int index = register_counter(counter);
    if (index < 0) return index;
  }
  return OMPI_SUCCESS;
}

void coll_loom_correct_variables(void) {
  coll_loom_correct(&coll_loom_variables, corrected, sizeof corrected);
}

void coll_loom_complain(bool show) {
  if (atomic_load_explicit(&complained, memory_order_relaxed) || atomic_exchange(&complained, true)) return;
  if (!show) return;
  if (*corrected != '\0') coll_loom_help("bad-values", corrected, "");
  const char *variable, *name = coll_loom_bad_filter(&variable);
  if (name != NULL) coll_loom_help("bad-filter", variable, name);
}
