/* The older way to call an operator, by name with descriptors and attributes. Descriptors and attributes can be made,
 * so that torch_npu gets as far as the call; the call itself names the operator and fails. */
#include "emulated.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DIMENSIONS = 64 };

typedef struct {
    int dtype, format, ndim;
    int64_t shape[MAX_DIMENSIONS];
} description;

API void *aclCreateTensorDesc(int dtype, int ndim, const int64_t *shape, int format) {
    if (ndim < 0 || ndim > MAX_DIMENSIONS) return NULL;
    description *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->dtype = dtype, made->format = format, made->ndim = ndim;
    if (ndim) memcpy(made->shape, shape, (size_t)ndim * sizeof *shape);
    return made;
}

API void aclDestroyTensorDesc(const void *given) { free((void *)given); }
API int aclGetTensorDescType(const description *given) { return given->dtype; }
API int aclGetTensorDescFormat(const description *given) { return given->format; }
API size_t aclGetTensorDescNumDims(const description *given) { return (size_t)given->ndim; }

API int aclGetTensorDescDimV2(const description *given, size_t axis, int64_t *size) {
    if (axis >= (size_t)given->ndim) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: a tensor of %d dimensions has no axis %zu", given->ndim, axis);
    *size = given->shape[axis];
    return EMU_OK;
}

API void aclSetTensorDescName(void *given, const char *name) { (void)given, (void)name; }
API int aclSetTensorFormat(void *given, int format) { (void)given, (void)format; return EMU_OK; }
API int aclSetTensorShape(void *given, int ndim, const int64_t *shape) { (void)given, (void)ndim, (void)shape; return EMU_OK; }
API int aclSetTensorPlaceMent(void *given, int memory) { (void)given, (void)memory; return EMU_OK; }

API void *aclCreateDataBuffer(void *data, size_t size) {
    aclArray *made = malloc(sizeof *made);
    if (made) *made = (aclArray){.count = (int64_t)size, .items = data};
    return made;
}

API int aclDestroyDataBuffer(const void *given) { free((void *)given); return EMU_OK; }

API void *aclopCreateAttr(void) { return malloc(1); }
API void aclopDestroyAttr(const void *given) { free((void *)given); }
API int aclopSetAttrBool(void *to, const char *name, uint8_t value) { (void)to, (void)name, (void)value; return EMU_OK; }
API int aclopSetAttrInt(void *to, const char *name, int64_t value) { (void)to, (void)name, (void)value; return EMU_OK; }
API int aclopSetAttrFloat(void *to, const char *name, float value) { (void)to, (void)name, (void)value; return EMU_OK; }
API int aclopSetAttrString(void *to, const char *name, const char *value) { (void)to, (void)name, (void)value; return EMU_OK; }
API int aclopSetAttrDataType(void *to, const char *name, int value) { (void)to, (void)name, (void)value; return EMU_OK; }
API int aclopSetAttrListBool(void *to, const char *name, int n, const uint8_t *values) { (void)to, (void)name, (void)n, (void)values; return EMU_OK; }
API int aclopSetAttrListInt(void *to, const char *name, int n, const int64_t *values) { (void)to, (void)name, (void)n, (void)values; return EMU_OK; }
API int aclopSetAttrListFloat(void *to, const char *name, int n, const float *values) { (void)to, (void)name, (void)n, (void)values; return EMU_OK; }
API int aclopSetAttrListListInt(void *to, const char *name, int n, const int *counts, const int64_t *const *values) {
    (void)to, (void)name, (void)n, (void)counts, (void)values;
    return EMU_OK;
}

/* Both take more arguments than these; in C only the first is needed to name the operator. */
API int aclopCompileAndExecute(const char *operator_type) { return emu_missing("operator type", operator_type); }
API int aclopCompileAndExecuteV2(const char *operator_type) { return emu_missing("operator type", operator_type); }
