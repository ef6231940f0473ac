/* Planted faults of an otherwise correct library of collectives, to test that a suite notices them. Written
 * "hccl-NAME", and after colons when and where: rank=1, collective=AllReduce, after=3, times=1, rate=0.1, bytes=65536
 * (the smallest size that is hit), seconds=5. Python checks them; see emulator/collective_faults.py. */
#include "hccl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char name[40], collective[24];
    int rank;
    uint64_t after, times, bytes, met, happened;
    double rate, seconds;
} fault;

enum { MAX_FAULTS = 8, TAIL = 16, CHUNK = 65536 };

static fault faults[MAX_FAULTS];
static int count_of_faults;
static pthread_once_t is_read = PTHREAD_ONCE_INIT;
static uint64_t chance = 88172645463325252u;

static void set(fault *of, const char *text) {
    char value[64];
    if (sscanf(text, "rank=%d", &of->rank) == 1) return;
    if (sscanf(text, "after=%63s", value) == 1) of->after = strtoull(value, NULL, 10);
    else if (sscanf(text, "times=%63s", value) == 1) of->times = strtoull(value, NULL, 10);
    else if (sscanf(text, "bytes=%63s", value) == 1) of->bytes = strtoull(value, NULL, 10);
    else if (sscanf(text, "rate=%63s", value) == 1) of->rate = strtod(value, NULL);
    else if (sscanf(text, "seconds=%63s", value) == 1) of->seconds = strtod(value, NULL);
    else sscanf(text, "collective=%23s", of->collective);
}

static void read_all(void) {
    char *text = strdup(getenv("PYTEST_ASCEND_FAULTS") ? getenv("PYTEST_ASCEND_FAULTS") : ""), *outer, *inner;
    for (char *each = strtok_r(text, ",", &outer); each && count_of_faults < MAX_FAULTS; each = strtok_r(NULL, ",", &outer)) {
        if (strncmp(each, "hccl-", 5)) continue;
        fault *made = &faults[count_of_faults++];
        *made = (fault){.rank = -1, .rate = 1, .seconds = 5};
        char *part = strtok_r(each, ":", &inner);
        snprintf(made->name, sizeof made->name, "%s", part + 5);
        while ((part = strtok_r(NULL, ":", &inner))) set(made, part);
    }
    chance ^= (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    free(text);
}

static uint64_t draw(void) { /* xorshift */
    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
    return chance;
}

static int own_rank(const communicator *comm) {
    int world = atomic_load(&comm->shared->places[comm->rank].world_rank);
    return world >= 0 ? world : (int)comm->rank;
}

static fault *named(const char *name) {
    pthread_once(&is_read, read_all);
    for (int i = 0; i < count_of_faults; i++)
        if (!strcmp(faults[i].name, name)) return &faults[i];
    return NULL;
}

/* Whether a fault is planted and happens in this operation. Sequences count operations begun by all ranks, so that
 * faults that involve several ranks happen in the same one. */
static fault *due(const char *name, const operation *given, uint64_t bytes) {
    fault *found = named(name);
    if (!found || (found->rank >= 0 && found->rank != own_rank(given->comm))) return NULL;
    if (found->collective[0] && strcmp(found->collective, hccl_kind_name(given->what.kind))) return NULL;
    if (bytes < found->bytes || found->met++ < found->after || (found->times && found->happened >= found->times)) return NULL;
    if (found->rate < 1 && (double)(draw() % 1000000) >= found->rate * 1e6) return NULL;
    found->happened++;
    return found;
}

/* --- before anything is sent --- */

int hccl_fault_root(int root, int kind) {
    (void)kind;
    return root > 0 && kind == BROADCAST && named("root-ignored") ? 0 : root;
}

/* The rank whose share is sent instead of one's own: the same for all ranks, or sizes would not fit. */
uint32_t hccl_fault_share(const operation *given, uint32_t share) {
    return given->what.kind == REDUCE_SCATTER && named("scatter-shifted") ? (share + 1) % given->comm->ranks : share;
}

void hccl_fault_before(operation *given, char **kept) {
    fault *found;
    if (due("crash", given, given->out_bytes)) raise(SIGSEGV);
    if (due("kill", given, given->out_bytes)) raise(SIGKILL);
    if (due("hang", given, given->out_bytes)) for (;;) pause();
    if ((found = due("slow", given, given->out_bytes))) usleep((useconds_t)(found->seconds * 1e6));
    if (!(named("stale-buffer") || named("lost-write")) || !given->out || !given->out_bytes) return;
    *kept = malloc(given->out_bytes);
    if (*kept) memcpy(*kept, given->out, given->out_bytes);
}

/* --- during summation --- */

static void through_half(char *into, const char *const *parts, const uint32_t *order, uint32_t ranks, uint64_t count, int op) {
    float *x = (float *)into;
    memcpy(x, parts[order[0]], count * 4);
    for (uint32_t i = 1; i < ranks; i++) {
        hccl_fold(x, parts[order[i]], count, FP32, op);
        for (uint64_t k = 0; k < count; k++) x[k] = hccl_from_half(hccl_to_half(x[k]));
    }
}

static void through_float(char *into, const char *const *parts, uint32_t ranks, uint64_t count) {
    int32_t *x = (int32_t *)into;
    for (uint64_t k = 0; k < count; k++) {
        float all = 0;
        for (uint32_t i = 0; i < ranks; i++) all += (float)((const int32_t *)parts[i])[k];
        x[k] = (int32_t)(int64_t)all;
    }
}

static void again(char *into, const char *const *parts, const uint32_t *order, const operation *given, uint64_t count, int op, uint32_t last) {
    memcpy(into, parts[order[0]], count * hccl_size_of(given->what.dtype));
    for (uint32_t i = 1; i < last; i++) hccl_fold(into, parts[order[i]], count, given->what.dtype, op);
}

/* Reorder a sum where the order must not change: each call another one. */
static void in_any_order(char *into, const char *const *parts, const operation *given, uint64_t count) {
    uint32_t order[MAX_RANKS], ranks = given->comm->ranks, start = (uint32_t)(given->what.sequence % ranks);
    for (uint32_t i = 0; i < ranks; i++) order[i] = (start + i) % ranks;
    again(into, parts, order, given, count, given->what.op, ranks);
}

void hccl_fault_sum(const operation *given, const char *const *parts, const uint32_t *order, char *into, uint64_t count) {
    uint32_t ranks = given->comm->ranks;
    uint64_t width = hccl_size_of(given->what.dtype), bytes = count * width, tail = TAIL;
    int dtype = given->what.dtype, op = given->what.op;
    if (!count_of_faults && !named("")) return;
    if (dtype == FP32 && due("reduced-in-half", given, bytes)) through_half(into, parts, order, ranks, count, op);
    if (dtype == INT32 && op == SUM && due("integers-in-float", given, bytes)) through_float(into, parts, ranks, count);
    if (due("rank-left-out", given, bytes)) again(into, parts, order, given, count, op, ranks - 1);
    if (due("rank-twice", given, bytes)) {
        again(into, parts, order, given, count, op, ranks - 1);
        hccl_fold(into, parts[order[0]], count, dtype, op);
    }
    if (op == PROD && due("product-as-sum", given, bytes)) again(into, parts, order, given, count, SUM, ranks);
    if (op == MIN && due("min-as-max", given, bytes)) again(into, parts, order, given, count, MAX, ranks);
    if (op == SUM && due("order-changes", given, bytes)) in_any_order(into, parts, given, count);
    if (dtype == BF16 && due("bfloat16-truncated", given, bytes))
        for (uint64_t k = 0; k < count; k++) ((uint16_t *)into)[k] &= 0xfffe;
    /* The tail of a bucket that does not fill a vector keeps the first rank's data. */
    if (count > TAIL && due("tail-not-reduced", given, bytes)) memcpy(into + (count - tail) * width, parts[0] + (count - tail) * width, tail * width);
}

/* --- at the end --- */

static void swap(char *a, char *b, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) {
        char kept = a[i];
        a[i] = b[i], b[i] = kept;
    }
}

static int is_of_blocks(const operation *given) {
    return given->what.kind >= ALL_GATHER && given->what.kind <= ALL_TO_ALL_V && given->comm->ranks > 1;
}

static void permuted(operation *given) {
    uint64_t least = given->counts[0] < given->counts[1] ? given->counts[0] : given->counts[1];
    swap(given->out + given->offsets[0], given->out + given->offsets[1], least);
}

static void first_chunk_again(operation *given) {
    if (given->out_bytes < 2 * CHUNK) return;
    memcpy(given->out + CHUNK, given->out, CHUNK);
}

static void block_of_the_last_twice(operation *given) {
    uint32_t last = given->comm->ranks - 1;
    uint64_t least = given->counts[0] < given->counts[last] ? given->counts[0] : given->counts[last];
    memcpy(given->out + given->offsets[last], given->out + given->offsets[0], least);
}

void hccl_fault_after(operation *given, char *kept) {
    uint64_t bytes = given->out_bytes, width = hccl_size_of(given->what.dtype);
    if (!count_of_faults || !given->out || !bytes) return;
    if (kept && due("stale-buffer", given, bytes)) memcpy(given->out, kept, bytes);
    if (kept && due("lost-write", given, bytes)) memcpy(given->out + bytes - (bytes + 3) / 4, kept + bytes - (bytes + 3) / 4, (bytes + 3) / 4);
    if (is_of_blocks(given) && due("ranks-permuted", given, bytes)) permuted(given);
    if (is_of_blocks(given) && due("block-twice", given, bytes)) block_of_the_last_twice(given);
    if (due("wrong-above-size", given, bytes)) first_chunk_again(given);
    if (due("last-element-lost", given, bytes)) memset(given->out + bytes - width, 0, width);
    if (due("ranks-differ", given, bytes)) given->out[0] ^= 1;
    if (due("at-random", given, bytes)) given->out[draw() % (bytes / width) * width + width - 1] ^= 0x20;
}
