/* Ascend Transformer Boost, libatb.so: the part of its C++ interface that torch_npu calls, in C.
 *
 * An operation is created from its parameters, and run with tensor descriptors through virtual functions. The layouts
 * are those of ATB's public headers (operation.h, context.h, types.h, svector.h); the names and the order of virtual
 * functions follow the Itanium C++ ABI, as gcc and clang do on x86-64 and aarch64. Python computes by name. */
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIMS = 8, INLINE_TENSORS = 65, MOST_WORDS = 24, INTEGERS = 6 };

typedef struct {
    int32_t dtype, format;
    int64_t dims[MOST_DIMS];
    uint64_t ndim;
    void *device, *host;
    uint64_t size;
} tensor;

/* atb::SVector<Tensor>: up to 64 elements are stored inline. */
typedef struct {
    size_t capacity, size;
    tensor inside[INLINE_TENSORS];
    tensor *heap;
} tensors;

typedef struct {
    tensors inputs, outputs;
} variant_pack;

typedef struct {
    const void *const *functions;
    void *stream;
} context;

typedef struct {
    const void *const *functions;
    const char *name;
    int64_t count;
    int64_t words[MOST_WORDS]; /* of the parameters, 32 bits each */
} operation;

/* std::string, whose text is on the heap and freed by its destructor. */
typedef struct {
    char *text;
    size_t length, capacity, unused;
} string;

static void nothing(void) {}

static int set_stream(context *self, void *stream) { self->stream = stream; return EMU_OK; }
static void *get_stream(const context *self) { return self->stream; }
static int accept(void *self, int value) { (void)self, (void)value; return EMU_OK; }
static int none(const void *self) { (void)self; return 0; }

static const void *const context_functions[] = {nothing, nothing, set_stream, get_stream, accept, none,
                                                nothing, nothing, accept,     none,       accept, none};

API int _ZN3atb13CreateContextEPPNS_7ContextE(context **made) {
    *made = calloc(1, sizeof **made);
    if (!*made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated ATB: no host memory for a context");
    (*made)->functions = context_functions;
    return EMU_OK;
}
API int _ZN3atb14DestroyContextEPNS_7ContextE(context *given) { free(given); return EMU_OK; }

static string get_name(const operation *self) {
    size_t length = strlen(self->name);
    return (string){.text = strdup(self->name), .length = length, .capacity = length};
}

static int setup(const operation *self, const variant_pack *pack, uint64_t *workspace, const context *where) {
    (void)self, (void)pack, (void)where;
    *workspace = 0;
    return EMU_OK;
}

/* Create the descriptors that Python reads; NULL if out of memory. */
static aclTensor **descriptors(const tensors *given) {
    const tensor *items = given->heap ? given->heap : given->inside;
    aclTensor **made = calloc(given->size + 1, sizeof *made);
    for (size_t i = 0; made && i < given->size; i++)
        made[i] = aclCreateTensor(items[i].dims, items[i].dtype < 0 ? 0 : items[i].ndim, items[i].dtype, NULL, 0, items[i].format, NULL, 0,
                                  items[i].device ? items[i].device : items[i].host);
    return made;
}

static void release(aclTensor **made) {
    for (size_t i = 0; made && made[i]; i++) free(made[i]);
    free(made);
}

/* torch_npu ignores the return value, and may: ATB's own errors are reported when the stream is synchronized. */
static int execute(const operation *self, const variant_pack *pack, void *workspace, uint64_t size, const context *where) {
    (void)workspace, (void)size;
    struct {
        const char *name;
        int64_t kind, count;
        const void *items;
    } parameters = {"words", INTEGERS, self->count, self->words};
    aclTensor **inputs = descriptors(&pack->inputs), **outputs = descriptors(&pack->outputs);
    int64_t words[] = {(intptr_t)self->name, (int64_t)pack->inputs.size, (intptr_t)inputs, (int64_t)pack->outputs.size, (intptr_t)outputs, 1,
                       (intptr_t)&parameters};
    int error = emu_run_by_name(words, where->stream);
    release(inputs);
    release(outputs);
    if (error == EMU_NOT_SUPPORTED) error = emu_missing("operation of ATB", self->name);
    if (error) emu_fail_later_with(error, aclGetRecentErrMsg());
    return error;
}

static const void *const operation_functions[] = {nothing, nothing, get_name, none, none, none, setup, execute};

static int create(const char *name, const void *parameters, size_t size, operation **made) {
    *made = calloc(1, sizeof **made);
    if (!*made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated ATB: no host memory for %s", name);
    (*made)->functions = operation_functions;
    (*made)->name = name;
    (*made)->count = (int64_t)(size / sizeof(int32_t));
    for (int64_t i = 0; i < (*made)->count; i++) (*made)->words[i] = ((const int32_t *)parameters)[i];
    return EMU_OK;
}

/* For each parameter structure, the number of bytes before the reserved ones. */
#define OPERATION(name, mangled, size)                                                                              \
    API int mangled(const void *given, operation **made) {                                                          \
        return create("Atb" name, given, size, made);                                                               \
    }
OPERATION("PagedAttention", _ZN3atb15CreateOperationINS_5infer19PagedAttentionParamEEEiRKT_PPNS_9OperationE, 52)
OPERATION("SelfAttention", _ZN3atb15CreateOperationINS_5infer18SelfAttentionParamEEEiRKT_PPNS_9OperationE, 80)
OPERATION("ReshapeAndCache", _ZN3atb15CreateOperationINS_5infer20ReshapeAndCacheParamEEEiRKT_PPNS_9OperationE, 8)
OPERATION("Rope", _ZN3atb15CreateOperationINS_5infer9RopeParamEEEiRKT_PPNS_9OperationE, 8)
OPERATION("Linear", _ZN3atb15CreateOperationINS_5infer11LinearParamEEEiRKT_PPNS_9OperationE, 12)
OPERATION("Elewise", _ZN3atb15CreateOperationINS_5infer12ElewiseParamEEEiRKT_PPNS_9OperationE, 40)
OPERATION("RmsNorm", _ZN3atb15CreateOperationINS_5infer12RmsNormParamEEEiRKT_PPNS_9OperationE, 40)
OPERATION("GroupTopk", _ZN3atb15CreateOperationINS_5infer14GroupTopkParamEEEiRKT_PPNS_9OperationE, 12)

/* Operations are few, and torch_npu keeps those it created: they live as long as the process. */
API int _ZN3atb16DestroyOperationEPNS_9OperationE(operation *given) { (void)given; return EMU_OK; }

API uint64_t _ZN3atb5Utils13GetTensorSizeERKNS_6TensorE(const tensor *given) {
    static const unsigned char sizes[] = {4, 2, 1, 4, 1, 0, 2, 2, 4, 8, 8, 8, 1, 0, 0, 0, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 4};
    uint64_t size = given->dtype < 0 || given->dtype >= (int)sizeof sizes ? 0 : sizes[given->dtype];
    for (uint64_t i = 0; i < given->ndim; i++) size *= (uint64_t)given->dims[i];
    return size;
}
