/* Error messages by thread, and the record of functions called that are not emulated. */
#define _GNU_SOURCE /* gettid */
#include "emulated.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static __thread char recent[2048];

/* Write an error into this process's file of CANN's log. The real runtime also logs below ~/ascend/log; the emulated
 * one only below ASCEND_PROCESS_LOG_PATH, and leaves the home directory alone. */
API void emu_plog(const char *module, const char *text) {
    const char *folder = getenv("ASCEND_PROCESS_LOG_PATH");
    if (!folder || !*folder) return;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char path[4200];
    static pid_t owner; /* a fork of a process that has its file gets its own */
    char when[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    pthread_mutex_lock(&lock);
    if (owner != getpid()) {
        static const char *const parts[] = {"", "/debug", "/debug/plog"};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            snprintf(path, sizeof path, "%.4000s%s", folder, parts[i]);
            mkdir(path, 0750);
        }
        strftime(when, sizeof when, "%Y%m%d%H%M%S", &local);
        snprintf(path, sizeof path, "%.4000s/debug/plog/plog-%d_%s000.log", folder, (int)getpid(), when);
        owner = getpid();
    }
    strftime(when, sizeof when, "%Y-%m-%d-%H:%M:%S", &local);
    FILE *file = fopen(path, "a");
    if (file) {
        fprintf(file, "[ERROR] %s(%d,python):%s.000.000 [emulated]%d %s\n", module, (int)getpid(), when, (int)gettid(), text);
        fclose(file);
    }
    pthread_mutex_unlock(&lock);
}

API int emu_fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(recent, sizeof recent, format, arguments);
    va_end(arguments);
    emu_plog("RUNTIME", recent);
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

/* CANN's log: torch_npu writes progress of every kind there, of which only errors are kept. */
API void aclAppLog(int level, const char *function, const char *file, uint32_t line, const char *format, ...) {
    (void)function, (void)file, (void)line;
    if (level < 3) return; /* ACL_ERROR */
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    emu_plog("APP", text);
}
