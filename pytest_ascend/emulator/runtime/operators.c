/* Calls of aclnn operators: the first phase stores the arguments, in the second Python computes. */
#define _GNU_SOURCE
#include "emulated.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int (*kernel_runner)(int64_t operator_index, const int64_t *words, int64_t into, int64_t stream);

static kernel_runner runner;

extern int aclrtStreamGetId(void *stream, int32_t *id);

/* Python registers the function that computes. */
API void emu_install(kernel_runner given) { __atomic_store_n(&runner, given, __ATOMIC_RELEASE); }

API emu_executor *emu_executor_new(int64_t operator_index, int64_t count) {
    emu_executor *made = malloc(sizeof *made + (size_t)count * sizeof(int64_t));
    if (made) *made = (emu_executor){.operator_index = operator_index, .count = count};
    return made;
}

/* Strings are only valid during the first phase. Copies form a chain: each begins with the pointer to the next. */
API int64_t emu_keep_text(emu_executor *executor, const char *text) {
    if (!text) return 0;
    size_t length = strlen(text) + 1;
    char *copy = malloc(sizeof(char *) + length);
    if (!copy) return 0;
    memcpy(copy, &executor->texts, sizeof(char *));
    memcpy(copy + sizeof(char *), text, length);
    executor->texts = copy;
    return (intptr_t)(copy + sizeof(char *));
}

static void executor_free(emu_executor *executor) {
    for (char *text = executor->texts, *next; text; text = next) {
        memcpy(&next, text, sizeof(char *));
        free(text);
    }
    free(executor);
}

API int aclDestroyAclOpExecutor(emu_executor *executor) { executor_free(executor); return EMU_OK; }

API int64_t emu_double_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The kernels live in Python, and the first call may come from a process that only inherited our environment: have the
 * current interpreter import them. It is found by name at run time, so that this compiles without Python's headers. */
static int bootstrap(void) {
    static int broken; /* once is enough: every further attempt would print the same traceback */
    if (broken) return emu_fail(EMU_KERNEL_FAILED, "emulated CANN: its operators could not be loaded; the traceback is above");
    int (*is_initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    if (!is_initialized || !ensure || !release || !run || !is_initialized())
        return emu_fail(EMU_KERNEL_FAILED, "emulated CANN: its operators need a Python interpreter in the process");
    int state = ensure();
    int failed = run("from pytest_ascend.emulator import dispatch\ndispatch.install()\n", NULL);
    release(state);
    broken = failed != 0;
    return failed ? emu_fail(EMU_KERNEL_FAILED, "emulated CANN: its operators could not be loaded; the traceback is above") : EMU_OK;
}

static kernel_runner installed(void) {
    kernel_runner found = __atomic_load_n(&runner, __ATOMIC_ACQUIRE);
    if (found) return found;
    bootstrap(); /* without a lock of ours: a waiting thread might hold the interpreter's; Python keeps order */
    return __atomic_load_n(&runner, __ATOMIC_ACQUIRE);
}

int emu_python(int64_t what, const int64_t *words, int64_t into, void *stream) {
    kernel_runner compute = installed();
    int32_t id;
    aclrtStreamGetId(stream, &id);
    return compute ? compute(what, words, into, id) : EMU_KERNEL_FAILED;
}

static int run(int64_t index, const int64_t *words, void *stream) {
    int64_t into = emu_planted("stream-kernels-overtake") ? 0 : emu_enter(stream);
    int error = emu_added(stream, into, emu_python(index, words, into, stream));
    if (error != EMU_CAPTURE_FORBIDS || !emu_waits_for_sizes(stream)) return error;
    emu_stream_drain(stream);
    return emu_python(index, words, 0, stream);
}

API int emu_run(emu_executor *executor, void *stream) {
    int forked = emu_after_fork();
    int error = forked ? forked : run(executor->operator_index, executor->words, stream);
    executor_free(executor);
    return error;
}

API int emu_run_by_name(const int64_t *words, void *stream) { return run(EMU_BY_NAME, words, stream); }
