/* The objects that aclnn operators take. They store their arguments of creation; Python reads them word by word. */
#include "emulated.h"

#include <stdlib.h>
#include <string.h>

API aclTensor *aclCreateTensor(const int64_t *shape, uint64_t ndim, int dtype, const int64_t *strides, int64_t offset, int format,
                               const int64_t *storage_shape, uint64_t storage_ndim, void *data) {
    (void)storage_shape, (void)storage_ndim;
    /* Python reads EMU_TENSOR_WORDS at once, and more only for tensors of many dimensions, so there are never fewer. */
    uint64_t words = 5 + 2 * ndim;
    aclTensor *made = malloc((words < EMU_TENSOR_WORDS ? EMU_TENSOR_WORDS : words) * sizeof(int64_t));
    if (!made) return NULL;
    *made = (aclTensor){.dtype = dtype, .ndim = (int64_t)ndim, .offset = offset, .data = (intptr_t)data, .format = format};
    if (ndim) memcpy(made->shape_and_strides, shape, ndim * sizeof(int64_t));
    if (strides) {
        memcpy(made->shape_and_strides + ndim, strides, ndim * sizeof(int64_t));
        return made;
    }
    int64_t step = 1;
    for (uint64_t axis = ndim; axis-- > 0; step *= shape[axis]) made->shape_and_strides[ndim + axis] = step;
    return made;
}

API int aclDestroyTensor(aclTensor *given) { free(given); return EMU_OK; }

/* Operators whose result has a data-dependent shape write the shape back into the descriptor. The caller frees with
 * delete[], which is free() in every C++ library that torch_npu is built with. */
API int aclGetViewShape(const aclTensor *given, int64_t **shape, uint64_t *ndim) {
    *ndim = (uint64_t)given->ndim;
    *shape = malloc((size_t)(given->ndim ? given->ndim : 1) * sizeof(int64_t));
    if (!*shape) return EMU_OUT_OF_MEMORY;
    memcpy(*shape, given->shape_and_strides, (size_t)given->ndim * sizeof(int64_t));
    return EMU_OK;
}

/* The NPU format of a stored matrix, and its size: ND (2) unchanged, FRACTAL_NZ (29) in tiles of 16 rows by 32 bytes of
 * int8, 8 int32 or otherwise 16 numbers of the dtype that the caller names. Other formats use the older way. The stored
 * data is nevertheless laid out as ND. The caller frees the shape as above. */
API int aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor *given, int format, int dtype, int64_t **shape, uint64_t *ndim,
                                                 int *actual) {
    uint64_t axes = (uint64_t)given->ndim;
    if (format != 2 && (format != 29 || axes < 2)) return EMU_NOT_SUPPORTED;
    *ndim = format == 2 ? axes : axes + 2;
    *shape = malloc((size_t)(*ndim ? *ndim : 1) * sizeof(int64_t));
    if (!*shape) return EMU_OUT_OF_MEMORY;
    *actual = format;
    memcpy(*shape, given->shape_and_strides, (size_t)axes * sizeof(int64_t));
    if (format == 2) return EMU_OK;
    int64_t width = dtype == 2 ? 32 : dtype == 3 ? 8 : 16, rows = (*shape)[axes - 2], columns = (*shape)[axes - 1];
    (*shape)[axes - 2] = (columns + width - 1) / width;
    (*shape)[axes - 1] = (rows + 15) / 16;
    (*shape)[axes] = 16;
    (*shape)[axes + 1] = width;
    return EMU_OK;
}

static size_t scalar_size(int dtype) {
    switch (dtype) {
        case 2: case 4: case 12: return 1;           /* int8, uint8, bool */
        case 1: case 6: case 7: case 27: return 2;   /* float16, int16, uint16, bfloat16 */
        case 0: case 3: case 8: return 4;            /* float32, int32, uint32 */
        case 17: return 16;                          /* complex128 */
        default: return 8;                           /* float64, int64, uint64, complex64 */
    }
}

API aclScalar *aclCreateScalar(void *value, int dtype) {
    aclScalar *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->dtype = dtype;
    memcpy(made->value, value, scalar_size(dtype));
    return made;
}

API int aclDestroyScalar(aclScalar *given) { free(given); return EMU_OK; }

static aclArray *array(const void *items, uint64_t count, size_t item_size) {
    aclArray *made = malloc(sizeof *made);
    if (!made) return NULL;
    *made = (aclArray){.count = (int64_t)count, .items = malloc(count * item_size + 1)};
    if (made->items) memcpy(made->items, items, count * item_size);
    return made;
}

static int destroy_array(aclArray *given) {
    if (given) free(given->items);
    free(given);
    return EMU_OK;
}

static int destroy_list(aclArray *given) { /* the elements belong to the list */
    for (int64_t i = 0; given && i < given->count; i++) free(((void **)given->items)[i]);
    return destroy_array(given);
}

API aclArray *aclCreateIntArray(const int64_t *items, uint64_t count) { return array(items, count, sizeof *items); }
API aclArray *aclCreateBoolArray(const unsigned char *items, uint64_t count) { return array(items, count, sizeof *items); }
API aclArray *aclCreateFloatArray(const float *items, uint64_t count) { return array(items, count, sizeof *items); }
API aclArray *aclCreateTensorList(void *const *items, uint64_t count) { return array(items, count, sizeof *items); }
API aclArray *aclCreateScalarList(void *const *items, uint64_t count) { return array(items, count, sizeof *items); }
API int aclDestroyIntArray(aclArray *given) { return destroy_array(given); }
API int aclDestroyBoolArray(aclArray *given) { return destroy_array(given); }
API int aclDestroyFloatArray(aclArray *given) { return destroy_array(given); }
API int aclDestroyTensorList(aclArray *given) { return destroy_list(given); }
API int aclDestroyScalarList(aclArray *given) { return destroy_list(given); }
