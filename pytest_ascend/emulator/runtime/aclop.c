/* The older way to call an operator: by name, with descriptors, buffers and attributes. Descriptors are tensor
 * descriptors whose data is filled in by the call, so that Python reads both kinds alike. */
#include "emulated.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    char *name;
    int64_t kind;  /* see the kinds below */
    int64_t count; /* of items */
    void *items;   /* 64-bit numbers, a text, or for lists of lists aclArrays */
} attribute;

typedef struct {
    int64_t count;
    attribute *items;
} attributes;

enum { FLAG, INTEGER, REAL, TEXT, DTYPE, FLAGS, INTEGERS, REALS, INTEGER_LISTS };

API aclTensor *aclCreateTensorDesc(int dtype, int ndim, const int64_t *shape, int format) {
    return ndim < 0 ? NULL : aclCreateTensor(shape, (uint64_t)ndim, dtype, NULL, 0, format, NULL, 0, NULL);
}

API void aclDestroyTensorDesc(const void *given) { free((void *)given); }
API int aclGetTensorDescType(const aclTensor *given) { return (int)given->dtype; }
API int aclGetTensorDescFormat(const aclTensor *given) { return (int)given->format; }
API size_t aclGetTensorDescNumDims(const aclTensor *given) { return (size_t)given->ndim; }

API int aclGetTensorDescDimV2(const aclTensor *given, size_t axis, int64_t *size) {
    if (axis >= (size_t)given->ndim)
        return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: a tensor of %d dimensions has no axis %zu", (int)given->ndim, axis);
    *size = given->shape_and_strides[axis];
    return EMU_OK;
}

/* Storage never has another format or shape here, and Python can tell host addresses from device addresses. */
API void aclSetTensorDescName(void *given, const char *name) { (void)given, (void)name; }
API int aclSetTensorFormat(void *given, int format) { (void)given, (void)format; return EMU_OK; }
API int aclSetTensorShape(void *given, int ndim, const int64_t *shape) { (void)given, (void)ndim, (void)shape; return EMU_OK; }
API int aclSetTensorPlaceMent(void *given, int memory) { (void)given, (void)memory; return EMU_OK; }

API aclArray *aclCreateDataBuffer(void *data, size_t size) {
    aclArray *made = malloc(sizeof *made);
    if (made) *made = (aclArray){.count = (int64_t)size, .items = data};
    return made;
}

API int aclDestroyDataBuffer(const void *given) { free((void *)given); return EMU_OK; }

API attributes *aclopCreateAttr(void) { return calloc(1, sizeof(attributes)); }

static void destroy(attribute *given) {
    for (int64_t i = 0; given->kind == INTEGER_LISTS && i < given->count; i++) free(((aclArray *)given->items)[i].items);
    free(given->items);
    free(given->name);
}

API void aclopDestroyAttr(const attributes *given) {
    for (int64_t i = 0; given && i < given->count; i++) destroy(&given->items[i]);
    if (given) free(given->items);
    free((void *)given);
}

/* Add an attribute with room for count items; NULL if out of memory. */
static void *added(attributes *to, const char *name, int kind, int64_t count, size_t item_size) {
    attribute *grown = realloc(to->items, (size_t)(to->count + 1) * sizeof *grown);
    if (!grown) return NULL;
    to->items = grown;
    attribute made = {.name = strdup(name), .kind = kind, .count = count, .items = calloc((size_t)count + 1, item_size)};
    if (!made.name || !made.items) {
        destroy(&made);
        return NULL;
    }
    grown[to->count++] = made;
    return made.items;
}

static int done(const void *items) { return items ? EMU_OK : emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for an attribute"); }

static int set_integer(attributes *to, const char *name, int kind, int64_t value) {
    int64_t *items = added(to, name, kind, 1, sizeof *items);
    if (items) *items = value;
    return done(items);
}

API int aclopSetAttrBool(attributes *to, const char *name, uint8_t value) { return set_integer(to, name, FLAG, value); }
API int aclopSetAttrInt(attributes *to, const char *name, int64_t value) { return set_integer(to, name, INTEGER, value); }
API int aclopSetAttrDataType(attributes *to, const char *name, int value) { return set_integer(to, name, DTYPE, value); }

API int aclopSetAttrListFloat(attributes *to, const char *name, int n, const float *values) {
    double *items = added(to, name, REALS, n, sizeof *items);
    for (int i = 0; items && i < n; i++) items[i] = values[i];
    return done(items);
}

API int aclopSetAttrFloat(attributes *to, const char *name, float value) {
    double *items = added(to, name, REAL, 1, sizeof *items);
    if (items) *items = value;
    return done(items);
}

API int aclopSetAttrString(attributes *to, const char *name, const char *value) {
    char *items = added(to, name, TEXT, (int64_t)strlen(value), 1);
    if (items) strcpy(items, value);
    return done(items);
}

API int aclopSetAttrListBool(attributes *to, const char *name, int n, const uint8_t *values) {
    int64_t *items = added(to, name, FLAGS, n, sizeof *items);
    for (int i = 0; items && i < n; i++) items[i] = values[i];
    return done(items);
}

API int aclopSetAttrListInt(attributes *to, const char *name, int n, const int64_t *values) {
    int64_t *items = added(to, name, INTEGERS, n, sizeof *items);
    if (items && n) memcpy(items, values, (size_t)n * sizeof *items);
    return done(items);
}

API int aclopSetAttrListListInt(attributes *to, const char *name, int n, const int *counts, const int64_t *const *values) {
    aclArray *items = added(to, name, INTEGER_LISTS, n, sizeof *items);
    for (int i = 0; items && i < n; i++) {
        items[i] = (aclArray){.count = counts[i], .items = malloc((size_t)counts[i] * sizeof(int64_t) + 1)};
        if (!items[i].items) return done(NULL);
        memcpy(items[i].items, values[i], (size_t)counts[i] * sizeof(int64_t));
    }
    return done(items);
}

static void fill_in(int count, aclTensor *const *descriptors, aclArray *const *buffers) {
    for (int i = 0; i < count; i++)
        if (descriptors[i]) descriptors[i]->data = buffers[i] ? (intptr_t)buffers[i]->items : 0;
}

API int aclopCompileAndExecuteV2(const char *type, int n, aclTensor *const *inputs, aclArray *const *input_data, int m,
                                 aclTensor *const *outputs, aclArray *const *output_data, const attributes *given,
                                 int engine, int compiles, const char *path, void *stream) {
    (void)engine, (void)compiles, (void)path;
    fill_in(n, inputs, input_data);
    fill_in(m, outputs, output_data);
    int64_t words[] = {(intptr_t)type, n, (intptr_t)inputs, m, (intptr_t)outputs, given ? given->count : 0, given ? (intptr_t)given->items : 0};
    int error = emu_run_by_name(words, stream);
    return error == EMU_NOT_SUPPORTED ? emu_missing("operator type", type) : error;
}

API int aclopCompileAndExecute(const char *type, int n, aclTensor *const *inputs, aclArray *const *input_data, int m,
                               aclTensor *const *outputs, aclArray *const *output_data, const attributes *given, int engine,
                               int compiles, const char *path, void *stream) {
    return aclopCompileAndExecuteV2(type, n, inputs, input_data, m, outputs, output_data, given, engine, compiles, path, stream);
}
