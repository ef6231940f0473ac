/* The work that the device did, for torch_npu.profiler (aclprof, and marks by mstx) and for torch.profiler (mspti). While
 * one of them records, every executed task is reported by emu_ran. aclprof leaves its records in a folder PROF_*, from
 * which the emulated msprof makes tables: see profiling.py. mspti returns them in the program's buffers. */
#define _GNU_SOURCE /* gettid */
#include "emulated.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern int aclrtGetDevice(int32_t *device);
extern int aclrtStreamGetId(void *stream, int32_t *id);

typedef struct record {
    const char *name; /* kept as long as the process: the receiver of a buffer may read it at any time */
    char *details;    /* a JSON object */
    uint64_t start, end;
    int32_t device, stream;
    int64_t thread;
    uint64_t operator; /* of torch, last reported to mspti in this thread */
    struct record *next;
} record;

typedef struct {
    record *first, **last;
} records;

API int emu_profilers; /* number of active profilers: read by whoever executes a task */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static records of_aclprof, of_mspti;
static int aclprof_records, mspti_records;

static uint64_t clock_ns(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

API uint64_t emu_profiled_ns(void) { return clock_ns(CLOCK_MONOTONIC_RAW); } /* the clock of torch_npu's own records */

static void count_profilers(void) { __atomic_store_n(&emu_profilers, aclprof_records + mspti_records, __ATOMIC_RELEASE); }

static void drop(records *all) {
    for (record *each = all->first, *next; each; each = next) {
        next = each->next;
        free(each->details);
        free(each);
    }
    *all = (records){0};
}

static void add(records *to, const record *what) {
    record *made = malloc(sizeof *made);
    if (!made) return;
    *made = *what;
    made->details = strdup(what->details);
    if (!to->first) to->last = &to->first;
    *to->last = made;
    to->last = &made->next;
}

static const char *kept_name(const char *name) {
    static struct name { struct name *next; char text[]; } *names[1024];
    unsigned hash = 5381;
    for (const char *each = name; *each; each++) hash = hash * 33 + (unsigned char)*each;
    struct name **chain = &names[hash % 1024];
    for (struct name *each = *chain; each; each = each->next) if (!strcmp(each->text, name)) return each->text;
    struct name *made = malloc(sizeof *made + strlen(name) + 1);
    if (!made) return "";
    strcpy(made->text, name);
    made->next = *chain;
    *chain = made;
    return made->text;
}

static __thread struct { uint64_t ids[64]; int depth; } told;

API void emu_ran(const char *name, const char *details, uint64_t start, uint64_t end, int32_t stream) {
    record made = {.details = (char *)details, .start = start, .end = end, .stream = stream, .thread = gettid()};
    if (told.depth > 0) made.operator = told.ids[(told.depth > 64 ? 64 : told.depth) - 1];
    if (aclrtGetDevice(&made.device)) made.device = 0;
    pthread_mutex_lock(&lock);
    made.name = kept_name(name);
    if (aclprof_records) add(&of_aclprof, &made);
    if (mspti_records) add(&of_mspti, &made);
    pthread_mutex_unlock(&lock);
}

API int emu_timed(const char *name, emu_work run, void *data, void *stream) {
    if (!__atomic_load_n(&emu_profilers, __ATOMIC_ACQUIRE)) return run(data);
    int32_t id;
    uint64_t start = emu_profiled_ns();
    int error = run(data);
    aclrtStreamGetId(stream, &id);
    emu_ran(name, "{}", start, emu_profiled_ns(), id);
    return error;
}

/* --- aclprof --- */

enum { PATH_LENGTH = 4096, UNSUPPORTED = 200007 };

static char folder[PATH_LENGTH];
static uint64_t began_us, began_ns;

API int aclprofInit(const char *path, size_t length) {
    if (!path || !length || length >= sizeof folder - 128) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: no folder for a profile");
    memcpy(folder, path, length);
    folder[length] = 0;
    return EMU_OK;
}

API int aclprofFinalize(void) { return EMU_OK; }

API void *aclprofCreateConfig(uint32_t *devices, uint32_t count, int metrics, const void *events, uint64_t kinds) {
    (void)devices, (void)count, (void)metrics, (void)events, (void)kinds;
    return calloc(1, 1);
}

API int aclprofDestroyConfig(void *given) {
    free(given);
    return EMU_OK;
}

API int aclprofWarmup(const void *given) { (void)given; return EMU_OK; }
API int aclprofSetConfig(int kind, const char *value, size_t length) { (void)kind, (void)value, (void)length; return EMU_OK; }
API int aclprofRegisterDeviceCallback(void) { return EMU_OK; }

API int aclprofGetSupportedFeaturesV2(size_t *size, void **into) {
    *size = 0, *into = NULL;
    return EMU_OK;
}

API int aclprofStart(const void *given) {
    (void)given;
    pthread_mutex_lock(&lock);
    drop(&of_aclprof);
    began_us = clock_ns(CLOCK_REALTIME) / 1000, began_ns = emu_profiled_ns();
    aclprof_records = 1;
    count_profilers();
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

static FILE *open_in(const char *base, const char *name) {
    char path[PATH_LENGTH + 64];
    snprintf(path, sizeof path, "%s/%s", base, name);
    return fopen(path, "w");
}

static int write_profile(void) {
    static unsigned number;
    static const char *const parts[] = {"", "/host", "/host/data", "/device_%d", "/device_%d/data"};
    char base[PATH_LENGTH], path[PATH_LENGTH + 64], pattern[PATH_LENGTH + 32];
    time_t seconds = (time_t)(began_us / 1000000);
    struct tm local;
    int32_t device = 0;
    aclrtGetDevice(&device);
    localtime_r(&seconds, &local);
    size_t length = strlen(folder);
    memcpy(base, folder, length);
    length += (size_t)snprintf(base + length, sizeof base - length, "/PROF_%06u_", ++number);
    length += strftime(base + length, sizeof base - length, "%Y%m%d%H%M%S", &local);
    snprintf(base + length, sizeof base - length, "%03u_EMULATED%08X", (unsigned)(began_us / 1000 % 1000), (unsigned)getpid());
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(pattern, sizeof pattern, "%%s%s", parts[i]);
        snprintf(path, sizeof path, pattern, base, device);
        if (mkdir(path, 0750)) return emu_fail(EMU_KERNEL_FAILED, "emulated CANN: the folder %s of a profile cannot be made", path);
    }
    FILE *info = open_in(base, "host/start_info"), *data = open_in(base, "host/data/emulated.jsonl");
    if (info) fprintf(info, "{\"collectionTimeBegin\": \"%lu\", \"clockMonotonicRaw\": \"%lu\"}\n", began_us, began_ns);
    for (record *each = of_aclprof.first; data && each; each = each->next)
        fprintf(data, "{\"name\": \"%s\", \"start\": %lu, \"end\": %lu, \"device\": %d, \"stream\": %d, \"thread\": %ld, \"details\": %s}\n",
                each->name, each->start, each->end, each->device, each->stream, each->thread, each->details);
    int failed = !info || !data || ferror(data);
    if (info) failed |= fclose(info) != 0;
    if (data) failed |= fclose(data) != 0;
    return failed ? emu_fail(EMU_KERNEL_FAILED, "emulated CANN: the profile in %s cannot be written", base) : EMU_OK;
}

API int aclprofStop(const void *given) {
    (void)given;
    pthread_mutex_lock(&lock);
    int recorded = aclprof_records;
    aclprof_records = 0;
    count_profilers();
    int error = recorded ? write_profile() : EMU_OK;
    drop(&of_aclprof);
    pthread_mutex_unlock(&lock);
    return error;
}

/* --- marks, and ranges between two of them --- */

static void mark(const char *message, uint64_t start, void *stream) {
    char escaped[1024];
    size_t at = 0;
    int32_t id;
    for (const char *each = message ? message : ""; *each && at < sizeof escaped - 8; each++) {
        if (*each == '"' || *each == '\\') escaped[at++] = '\\';
        escaped[at++] = (unsigned char)*each < ' ' ? ' ' : *each;
    }
    escaped[at] = 0;
    aclrtStreamGetId(stream, &id);
    char details[1200];
    snprintf(details, sizeof details, "{\"mark\": \"%s\"}", escaped);
    if (__atomic_load_n(&emu_profilers, __ATOMIC_ACQUIRE)) emu_ran("mstx", details, start, emu_profiled_ns(), id);
}

API int aclprofMarkEx(const char *message, size_t length, void *stream) {
    char *copy = strndup(message, length);
    if (copy) mark(copy, emu_profiled_ns(), stream);
    free(copy);
    return EMU_OK;
}

enum { RANGES = 256 };
static struct { char *message; uint64_t start, id; void *stream; } ranges[RANGES];
static uint64_t range_ids;

API void mstxMarkA(const char *message, void *stream) { mark(message, emu_profiled_ns(), stream); }

API uint64_t mstxRangeStartA(const char *message, void *stream) {
    pthread_mutex_lock(&lock);
    uint64_t id = ++range_ids, place = id % RANGES;
    free(ranges[place].message);
    ranges[place].message = strdup(message ? message : ""), ranges[place].start = emu_profiled_ns();
    ranges[place].id = id, ranges[place].stream = stream;
    pthread_mutex_unlock(&lock);
    return id;
}

API void mstxRangeEnd(uint64_t id) {
    pthread_mutex_lock(&lock);
    char *message = ranges[id % RANGES].id == id ? ranges[id % RANGES].message : NULL;
    uint64_t start = ranges[id % RANGES].start;
    void *stream = ranges[id % RANGES].stream;
    if (message) ranges[id % RANGES].message = NULL, ranges[id % RANGES].id = 0;
    pthread_mutex_unlock(&lock);
    if (message) mark(message, start, stream);
    free(message);
}

API void *mstxDomainCreateA(const char *name) { return (void *)kept_name(name ? name : ""); }
API void mstxDomainDestroy(void *domain) { (void)domain; }
API void mstxDomainMarkA(void *domain, const char *message, void *stream) { (void)domain; mstxMarkA(message, stream); }
API uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream) { (void)domain; return mstxRangeStartA(message, stream); }
API void mstxDomainRangeEnd(void *domain, uint64_t id) { (void)domain; mstxRangeEnd(id); }

/* --- mspti --- */

enum { MSPTI_OK = 0, MSPTI_NO_MORE = 3, MSPTI_FAILED = 999, KERNEL = 2, EXTERNAL_CORRELATION = 8, KINDS = 13 };

#pragma pack(push, 4)
typedef struct {
    int32_t kind;
    uint64_t start, end;
    uint32_t device, stream;
    uint64_t correlation;
    const char *type, *name;
} kernel_activity;

typedef struct {
    int32_t kind, external_kind;
    uint64_t external, correlation;
} correlation_activity;
#pragma pack(pop)

typedef void (*requested)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*completed)(uint8_t *buffer, size_t size, size_t valid);

static requested request;
static completed complete;
static int enabled[KINDS];
static uint64_t correlations;

API int msptiSubscribe(void **into, void *callback, void *data) {
    static int one;
    (void)callback, (void)data;
    *into = &one;
    return MSPTI_OK;
}

API int msptiUnsubscribe(void *given) { (void)given; return MSPTI_OK; }

API int msptiActivityRegisterCallbacks(requested first, completed then) {
    request = first, complete = then;
    return MSPTI_OK;
}

static int enable(int kind, int is_enabled) {
    if (kind < 0 || kind >= KINDS) return 1;
    pthread_mutex_lock(&lock);
    enabled[kind] = is_enabled;
    mspti_records = enabled[KERNEL];
    count_profilers();
    pthread_mutex_unlock(&lock);
    return MSPTI_OK;
}

API int msptiActivityEnable(int kind) { return enable(kind, 1); }
API int msptiActivityDisable(int kind) { return enable(kind, 0); }
API int msptiActivityIsEnabled(int kind) { return kind >= 0 && kind < KINDS && enabled[kind]; }

API int msptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
    (void)kind;
    if (told.depth < 64) told.ids[told.depth] = id;
    told.depth++;
    return MSPTI_OK;
}

API int msptiActivityPopExternalCorrelationId(int kind, uint64_t *last) {
    (void)kind;
    if (told.depth <= 0) return 5;
    told.depth--;
    if (last && told.depth < 64) *last = told.ids[told.depth];
    return MSPTI_OK;
}

static size_t size_of(const uint8_t *activity) {
    int32_t kind;
    memcpy(&kind, activity, sizeof kind);
    return ((kind == KERNEL ? sizeof(kernel_activity) : sizeof(correlation_activity)) + 7) / 8 * 8;
}

API int msptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **into) {
    uint8_t *next = *into ? *into + size_of(*into) : buffer;
    int is_there = valid && next < buffer + valid;
    *into = is_there ? next : NULL;
    return is_there ? MSPTI_OK : MSPTI_NO_MORE;
}

/* Put a record into a buffer, after the operator that it belongs to. Times there are wall-clock times. */
static size_t put(uint8_t *at, const record *each, uint64_t ahead) {
    uint64_t id = ++correlations;
    correlation_activity outer = {EXTERNAL_CORRELATION, 2, each->operator, id};
    kernel_activity inner = {KERNEL, each->start + ahead, each->end + ahead, (uint32_t)each->device, (uint32_t)each->stream, id, "KERNEL_AICORE", each->name};
    size_t used = 0;
    if (each->operator && enabled[EXTERNAL_CORRELATION]) {
        memcpy(at, &outer, sizeof outer);
        used = size_of(at);
    }
    memcpy(at + used, &inner, sizeof inner);
    return used + size_of(at + used);
}

API int msptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    pthread_mutex_lock(&lock);
    records taken = of_mspti;
    of_mspti = (records){0};
    pthread_mutex_unlock(&lock);
    uint64_t ahead = clock_ns(CLOCK_REALTIME) - emu_profiled_ns();
    uint8_t *buffer = NULL;
    size_t size = 0, used = 0, most = 0;
    for (record *each = taken.first; each && request && complete; each = each->next) {
        if (buffer && size - used < 256) {
            complete(buffer, size, used);
            buffer = NULL;
        }
        if (!buffer) request(&buffer, &size, &most), used = 0;
        if (!buffer || size < 256) break;
        used += put(buffer + used, each, ahead);
    }
    if (buffer) complete(buffer, size, used);
    drop(&taken);
    return MSPTI_OK;
}
