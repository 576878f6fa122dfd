/* What launches and their previews share. */
#ifndef LAUNCHKIT_PREVIEW_H
#define LAUNCHKIT_PREVIEW_H

#include "core.h"

/* core.c: call `use` with the bound (args, kwargs[, grid]) of a tuple. */
typedef int (*CallUser)(Core *core, Call *call, PyObject *grid, PyObject **result);
PyObject *with_call(Core *core, PyObject *args, CallUser use);

/* launch.c */
PyObject *value_of(const Call *call, const Plan *plan, int index);
int prepare_launch(const Plan *plan, Call *call, PyObject *grid, LaunchConfig *config,
                   uint64_t *converted, void **params);
int settle_grid(Core *core, const Plan *plan, const Call *call, PyObject **grid,
                PyObject **owned);

/* params.c */
Py_ssize_t size_of(int kind);

/* preview.c */
PyObject *core_preview(Core *core, PyObject *args);

#endif
