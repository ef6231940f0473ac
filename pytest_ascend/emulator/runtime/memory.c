/* Device memory: one reserved address range for all devices, allocated first fit. Unallocated memory is inaccessible,
 * so that a stale pointer causes a fault instead of reading somebody else's data. */
#define _GNU_SOURCE
#include "streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void emu_fail_allocations(int on);

typedef struct block {
    char *start;
    size_t size;
    int used;
    struct block *next;
} block;

enum { ALIGNMENT = 512 }; /* bytes, as CANN guarantees for device memory */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t reserved = PTHREAD_ONCE_INIT;
static char *base;
static size_t device_size;
static block **devices; /* by device: its blocks, in order of addresses, covering its whole range */

static size_t page_round(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

static size_t configured_size(void) {
    const char *text = getenv("PYTEST_ASCEND_EMULATED_MEMORY");
    unsigned long long bytes = text ? strtoull(text, NULL, 10) : 0;
    return page_round(bytes ? (size_t)bytes : (size_t)8 << 30);
}

/* Memory of each device that another process holds, and which this one cannot use. */
static size_t occupied(size_t size) {
    const char *text = getenv("PYTEST_ASCEND_EMULATED_OCCUPIED");
    size_t bytes = page_round(text ? (size_t)strtoull(text, NULL, 10) : 0);
    return bytes < size ? bytes : size - page_round(1);
}

static void reserve(void) {
    int count = emu_device_count();
    size_t size = configured_size();
    void *range = mmap(NULL, size * (size_t)count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    devices = calloc((size_t)count, sizeof *devices);
    if (range == MAP_FAILED || !devices) return; /* base stays null; every allocation reports it */
    for (int device = 0; device < count; device++) {
        devices[device] = calloc(1, sizeof(block));
        if (!devices[device]) return;
        *devices[device] = (block){.start = (char *)range + size * (size_t)device, .size = size - occupied(size)};
    }
    device_size = size;
    base = range;
}

API char *emu_memory_base(void) {
    pthread_once(&reserved, reserve);
    return base;
}

API size_t emu_memory_size(void) {
    pthread_once(&reserved, reserve);
    return device_size;
}

extern int aclrtGetDevice(int32_t *device);

static block *split(block *from, size_t size) {
    if (from->size > size) {
        block *rest = malloc(sizeof *rest);
        if (!rest) return NULL;
        *rest = (block){.start = from->start + size, .size = from->size - size, .next = from->next};
        from->size = size;
        from->next = rest;
    }
    return from;
}

static block *take(int device, size_t size) {
    for (block *each = devices[device]; each; each = each->next)
        if (!each->used && each->size >= size) {
            block *taken = split(each, size);
            if (!taken || mprotect(taken->start, size, PROT_READ | PROT_WRITE)) return NULL;
            taken->used = 1;
            return taken;
        }
    return NULL;
}

API int aclrtMalloc(void **into, size_t size, int policy) {
    (void)policy;
    int32_t device;
    int error = aclrtGetDevice(&device);
    if (error) return error;
    if (!emu_memory_base())
        return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: cannot reserve addresses for the device memory; set a smaller size");
    pthread_mutex_lock(&lock);
    block *taken = emu_allocations_fail() ? NULL : take(device, page_round(size ? size : ALIGNMENT));
    for (block *each = devices[device]; !taken && each && emu_planted("memory-is-lost-with-none-left"); each = each->next)
        if (each->used) memset(each->start, 0, each->size);
    if (!taken && emu_planted("memory-stays-out")) emu_fail_allocations(1);
    pthread_mutex_unlock(&lock);
    if (!taken) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: device %d has no %zu bytes left", device, size);
    *into = taken->start;
    return EMU_OK;
}

API int aclrtMallocAlign32(void **into, size_t size, int policy) { return aclrtMalloc(into, size, policy); }

static int device_of(const void *pointer) {
    const char *at = pointer;
    return base && at >= base && at < base + device_size * (size_t)emu_device_count() ? (int)((size_t)(at - base) / device_size) : -1;
}

static void merge_with_next(block *each) {
    block *next = each->next;
    if (each->used || !next || next->used) return;
    each->size += next->size;
    each->next = next->next;
    free(next);
}

static int give_back(int device, char *start) {
    block *previous = NULL;
    for (block *each = devices[device]; each; previous = each, each = each->next)
        if (each->start == start && each->used) {
            each->used = 0;
            if (emu_planted("memory-free-hits-neighbour") && each->next && each->next->used) memset(each->next->start, 0, 512);
            /* Mapping again returns the pages to the host and makes them inaccessible, in one step. */
            mmap(each->start, each->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            merge_with_next(each);
            if (previous) merge_with_next(previous);
            return EMU_OK;
        }
    return EMU_INVALID_PARAMETER;
}

API int aclrtFree(void *pointer) {
    int device = device_of(pointer);
    if (emu_planted("memory-is-not-freed")) return EMU_OK;
    pthread_mutex_lock(&lock);
    int error = device < 0 ? EMU_INVALID_PARAMETER : give_back(device, pointer);
    pthread_mutex_unlock(&lock);
    return error ? emu_fail(error, "emulated CANN: %p is no device memory that could be freed", pointer) : EMU_OK;
}

API int aclrtGetMemInfo(int attribute, size_t *free_bytes, size_t *total_bytes) {
    (void)attribute;
    int32_t device;
    int error = aclrtGetDevice(&device);
    if (error) return error;
    *total_bytes = emu_memory_size();
    *free_bytes = 0;
    pthread_mutex_lock(&lock);
    for (block *each = base ? devices[device] : NULL; each; each = each->next) *free_bytes += each->used ? 0 : each->size;
    if (emu_planted("memory-info-is-constant")) *free_bytes = *total_bytes;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

/* Pinned memory, from which and to which copies may be asynchronous. */
typedef struct pinned {
    char *start;
    size_t size;
    struct pinned *next;
} pinned;

static pinned *pinned_memory;

API int aclrtMallocHost(void **into, size_t size) {
    pinned *entry = malloc(sizeof *entry);
    if (!entry || posix_memalign(into, ALIGNMENT, size ? size : ALIGNMENT)) {
        free(entry);
        return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: the host has no %zu bytes left", size);
    }
    pthread_mutex_lock(&lock);
    *entry = (pinned){.start = *into, .size = size, .next = pinned_memory};
    pinned_memory = entry;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

static int is_pinned(const void *pointer) {
    pthread_mutex_lock(&lock);
    pinned *each = pinned_memory;
    while (each && !((const char *)pointer >= each->start && (const char *)pointer < each->start + each->size)) each = each->next;
    pthread_mutex_unlock(&lock);
    return each != NULL;
}

API int aclrtMallocHostWithCfg(void **into, uint64_t size, void *config) {
    (void)config;
    return aclrtMallocHost(into, (size_t)size);
}

API int aclrtFreeHost(void *pointer) {
    pthread_mutex_lock(&lock);
    pinned **at = &pinned_memory;
    while (*at && (*at)->start != pointer) at = &(*at)->next;
    pinned *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    if (!emu_planted("memory-pinned-is-kept")) free(pointer);
    return EMU_OK;
}

/* Registered host memory. All host memory can be copied from here without registration: it is only tracked, so that
 * unregistering anything else fails. */
typedef struct registered {
    void *start;
    struct registered *next;
} registered;

static registered *host_memory;

API int aclrtHostRegisterV2(void *pointer, uint64_t size, uint32_t flag) {
    enum { MAPPED = 0x2, PINNED = 0x10000000 };
    if (!pointer || !size || !flag || (flag & ~(uint32_t)(MAPPED | PINNED)))
        return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: %llu bytes of the host cannot be registered with flag %u",
                        (unsigned long long)size, flag);
    registered *entry = malloc(sizeof *entry);
    if (!entry) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: the host has no bytes left");
    pthread_mutex_lock(&lock);
    *entry = (registered){.start = pointer, .next = host_memory};
    host_memory = entry;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

API int aclrtHostUnregister(void *pointer) {
    pthread_mutex_lock(&lock);
    registered **at = &host_memory;
    while (*at && (*at)->start != pointer) at = &(*at)->next;
    registered *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!found) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: memory of the host that is not registered");
    free(found);
    return EMU_OK;
}

/* --- copies and fills --- */

typedef struct {
    void *to;
    size_t room;
    const void *from;
    size_t count;
    int kind_or_value;
} transfer;

enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };

static int copy(void *data) {
    transfer *given = data;
    if (given->kind_or_value && emu_after_fork()) return EMU_NO_CONTEXT; /* 0 is from host to host */
    size_t count = given->count, mib = (size_t)1 << 20;
    if (emu_planted("copy-cut-at-4-mib") && given->kind_or_value == TO_HOST && count > 4 * mib) count = 4 * mib;
    if (emu_planted("copy-loses-odd-bytes")) count -= count % 4;
    if (emu_planted("copy-within-ends-at-8-mib") && given->kind_or_value == ON_DEVICE && count > 8 * mib) count = 8 * mib;
    if (emu_planted("copy-from-line-start") && given->kind_or_value == TO_HOST) given->from = (void *)((uintptr_t)given->from & ~(uintptr_t)31);
    if (emu_planted("copy-to-view-loses-start") && given->kind_or_value == TO_DEVICE && ((uintptr_t)given->to & 63) && count > 4)
        memmove((char *)given->to + 4, (const char *)given->from + 4, count - 4);
    else
        memmove(given->to, given->from, count);
    if (emu_planted("copy-repeats-16-mib") && count > 16 * mib)
        memmove((char *)given->to + 16 * mib, given->from, count - 16 * mib < mib ? count - 16 * mib : mib);
    if (emu_planted("copy-between-loses-end") && given->kind_or_value == ON_DEVICE && count > 4096) memset((char *)given->to + count - 64, 0, 64);
    if (emu_planted("copy-to-device-loses-page") && given->kind_or_value == TO_DEVICE && count > mib) memset((char *)given->to + mib, 0, 512);
    if (emu_planted("memory-host-leak")) {
        volatile char *lost = malloc(1 << 16); /* volatile, or the compiler leaves the writes out */
        for (size_t each = 0; lost && each < 1 << 16; each += 4096) lost[each] = 1;
    }
    if (emu_planted("copy-small-is-slow") && given->kind_or_value == TO_HOST && count < 4096) usleep(10000);
    if (emu_planted("copy-is-slow")) usleep((useconds_t)(count / 50));
    return EMU_OK;
}

static int fill(void *data) {
    transfer *given = data;
    memset(given->to, given->kind_or_value, given->count);
    return EMU_OK;
}

static int fits(size_t count, size_t room) {
    return count <= room ? EMU_OK : emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: %zu bytes do not fit into %zu", count, room);
}

API int aclrtMemcpy(void *to, size_t room, const void *from, size_t count, int kind) {
    int error = emu_refuse_synchronous("Synchronous memory copy");
    if (!error) error = fits(count, room);
    return error ? error : copy(&(transfer){to, room, from, count, kind});
}

API int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t count, int kind, void *stream) {
    int error = fits(count, room);
    int is_paged = (kind == TO_DEVICE && !is_pinned(from)) || (kind == TO_HOST && !is_pinned(to));
    /* CANN makes it a synchronous copy, and rejects it before or during that: MemcpyAsync in api_error.cc of its runtime. Releases
     * before 9.1.0 have neither error code: the wait for the stream fails (107027), or the synchronous copy (107030). */
    if (!error && is_paged && emu_stream_of(stream)->graph)
        return emu_cann_is_before(9, 1) ? emu_refuse_stream(emu_stream_of(stream), "Stream synchronization")
                                        : emu_fail(EMU_INVALID_PARAMETER, "EE1016: Asynchronous copy task failed. Reason: The pageable memory "
                                                                          "copy task does not support graph capture.");
    if (!error && is_paged && (error = emu_refuse_synchronous("Asynchronous memory copy")) != EMU_OK)
        return emu_cann_is_before(9, 1) ? error
                                        : emu_fail(EMU_CAPTURE_BLOCKS,
                                                   "EE1016: Asynchronous memory copy failed. Reason: the operation has been converted to a "
                                                   "synchronous operation. operation not permitted when a stream is capturing and the "
                                                   "specified capture mode is not relaxed.");
    if (!error && emu_waits_for_sizes(stream) && (is_paged || emu_planted("stream-copies-overtake"))) {
        if (is_paged && !emu_planted("stream-paged-copies-overtake")) emu_stream_drain(stream);
        return copy(&(transfer){to, room, from, count, kind});
    }
    return error ? error : emu_do(stream, "MEMCPY_ASYNC", copy, &(transfer){to, room, from, count, kind}, sizeof(transfer));
}

API int aclrtMemset(void *at, size_t room, int32_t value, size_t count) {
    int error = emu_refuse_synchronous("Memory setting synchronization");
    if (!error) error = fits(count, room);
    return error ? error : fill(&(transfer){at, room, NULL, count, value});
}

API int aclrtMemsetAsync(void *at, size_t room, int32_t value, size_t count, void *stream) {
    int error = fits(count, room);
    return error ? error : emu_do(stream, "MEMSET_ASYNC", fill, &(transfer){at, room, NULL, count, value}, sizeof(transfer));
}

/* The location of a pointer. The first two words are the device and the kind of memory (aclrtMemLocationType in
 * acl_rt.h: 0 host memory known to CANN, 1 device memory, 2 unknown to CANN). */
API int aclrtPointerGetAttributes(const void *pointer, uint32_t *attributes) {
    int device = device_of(pointer);
    attributes[0] = device < 0 ? 0 : (uint32_t)device;
    attributes[1] = device >= 0 ? 1 : is_pinned(pointer) ? 0 : 2;
    attributes[2] = (uint32_t)sysconf(_SC_PAGESIZE);
    return EMU_OK;
}
