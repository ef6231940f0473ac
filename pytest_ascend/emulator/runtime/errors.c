/* Error messages by thread, and the record of what was called and is not emulated. */
#include "emulated.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char recent[2048];

API int emu_fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(recent, sizeof recent, format, arguments);
    va_end(arguments);
    return code;
}

API const char *aclGetRecentErrMsg(void) { return recent[0] ? recent : "the emulated CANN has no message on this error"; }

static pthread_mutex_t missing_lock = PTHREAD_MUTEX_INITIALIZER;
static char missing_names[16384];
static size_t missing_used;

API int emu_missing(const char *kind, const char *name) {
    size_t length = strlen(name);
    pthread_mutex_lock(&missing_lock);
    if (missing_used + length + 2 < sizeof missing_names) {
        memcpy(missing_names + missing_used, name, length);
        missing_used += length;
        missing_names[missing_used++] = '\n';
    }
    pthread_mutex_unlock(&missing_lock);
    return emu_fail(EMU_NOT_SUPPORTED, "emulated CANN: the %s %s is not emulated", kind, name);
}

API size_t emu_take_missing(char *buffer, size_t size) {
    pthread_mutex_lock(&missing_lock);
    size_t used = missing_used;
    if (used < size) {
        memcpy(buffer, missing_names, used);
        buffer[used] = 0;
        missing_used = 0;
    }
    pthread_mutex_unlock(&missing_lock);
    return used;
}

/* The log of CANN: torch_npu writes progress of every kind there; nobody reads it here. */
API void aclAppLog(int level, const char *function, const char *file, uint32_t line, const char *format, ...) {
    (void)level, (void)function, (void)file, (void)line, (void)format;
}
