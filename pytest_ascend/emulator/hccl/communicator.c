/* Communicators: how ranks find each other and their shared memory, and what they know of each other.
 *
 * The memory has no name: its file belongs to the root, and the others open it through /proc. Nothing is left behind,
 * however a process ends. All processes must run on one machine, as one user. */
#define _GNU_SOURCE
#include "hccl.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern int aclrtGetDevice(int32_t *device);

/* HcclCommConfig, as far as it is read. */
typedef struct {
    size_t size;
    uint32_t magic, version;
    uint64_t reserved;
    uint32_t buffer_size, deterministic;
    char name[NAME_LENGTH], udi[128];
    uint32_t expansion_mode, traffic_class, service_level, world_rank;
    uint64_t job;
    uint8_t zero_copy;
    int32_t exec_timeout;
} configuration;

enum { NOT_SET = -1, CAPABILITIES = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static communicator *known[256];
static int wants_determinism;

double hccl_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double hccl_seconds(const char *variable, double otherwise) {
    const char *text = getenv(variable);
    double value = text && *text ? strtod(text, NULL) : otherwise;
    return value > 0 ? value : value == 0 ? INFINITY : otherwise;
}

int hccl_fail(int code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    emu_fail(code, "emulated HCCL: %s", text);
    return code;
}

/* --- processes --- */

/* Start time of a process, in ticks since boot; 0 if it is gone. A zombie is: nobody has reaped it yet. */
static uint64_t began(int32_t pid, char *state) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    *state = 'X';
    if (size <= 0) return 0;
    text[size] = 0;
    char *field = strrchr(text, ')');
    if (!field) return 0;
    *state = field[2];
    for (int i = 2; field && i < 22; i++) field = strchr(field + 1, ' ');
    return field && *state != 'Z' && *state != 'X' ? strtoull(field, NULL, 10) : 0;
}

int hccl_is_gone(communicator *comm, uint32_t rank) {
    place *of = &comm->shared->places[rank];
    char state;
    return atomic_load(&of->has_left) || (atomic_load(&of->pid) && began(of->pid, &state) != of->started);
}

/* Whether a signal has stopped a rank's process: it began what the others wait for, and does not continue. */
int hccl_is_stopped(communicator *comm, uint32_t rank) {
    char state;
    began(comm->shared->places[rank].pid, &state);
    return state == 'T' || state == 't';
}

void hccl_describe_state(communicator *comm, uint32_t rank, char *into, size_t size) {
    place *of = &comm->shared->places[rank];
    char state, who[96];
    uint64_t start = began(of->pid, &state);
    snprintf(who, sizeof who, "rank %u (process %d, npu:%d%s", rank, of->pid, of->device, "");
    if (of->world_rank >= 0) snprintf(who + strlen(who), sizeof who - strlen(who), ", RANK=%d", of->world_rank);
    if (atomic_load(&of->has_left)) snprintf(into, size, "%s) has left the communicator", who);
    else if (start != of->started) snprintf(into, size, "%s) is gone: Heartbeat Lost Occurred, Process has exited", who);
    else if (state == 'T' || state == 't') snprintf(into, size, "%s) is stopped", who);
    else snprintf(into, size, "%s) is alive, and has begun %llu collectives", who, (unsigned long long)of->entered);
}

/* --- shared memory --- */

static void fill_root(char *root, size_t size) {
    static _Atomic uint32_t made;
    char state;
    int file = memfd_create("hccl", MFD_CLOEXEC);
    snprintf(root, size, "%d %llu %d %u", getpid(), (unsigned long long)began(getpid(), &state), file, atomic_fetch_add(&made, 1));
}

static size_t rings_of(uint32_t ranks) { return ranks <= 4 ? (size_t)1 << 20 : (size_t)1 << 18; }

/* Map the memory announced by a root. The root closes its file when all ranks have arrived. */
static int map(const char *root, uint32_t ranks, communicator *comm, int *roots_file) {
    int pid, file;
    unsigned long long start;
    unsigned made;
    char path[64], state;
    if (sscanf(root, "%d %llu %d %u", &pid, &start, &file, &made) != 4 || file < 0)
        return hccl_fail(HCCL_E_PARA, "EI0003: the root information is none that HcclGetRootInfo gave");
    comm->ring_bytes = rings_of(ranks);
    size_t head = (sizeof(shared_state) + 4095) / 4096 * 4096;
    comm->bytes = head + comm->ring_bytes * ranks * ranks;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, file);
    int mine = began(pid, &state) == start ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (mine < 0)
        return hccl_fail(HCCL_E_TIMEOUT, "EI0006: Getting socket times out: the process %d of the root rank is not to be found on this machine; ranks on several machines, or in containers with processes of their own, are not emulated", pid);
    struct stat found;
    int is_wrong = fstat(mine, &found) || (found.st_size && (size_t)found.st_size != comm->bytes);
    if (!is_wrong && !found.st_size) is_wrong = ftruncate(mine, (off_t)comm->bytes);
    void *memory = is_wrong ? MAP_FAILED : mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
    close(mine);
    if (is_wrong) return hccl_fail(HCCL_E_PARA, "EI0005: The arguments for collective communication are inconsistent between ranks: parameter[nRanks], here [%u]", ranks);
    if (memory == MAP_FAILED) return hccl_fail(HCCL_E_MEMORY, "EI0007: no memory for a communicator of %u ranks", ranks);
    comm->shared = memory;
    comm->buffers = (char *)memory + head;
    *roots_file = pid == getpid() ? file : -1;
    return HCCL_OK;
}

static int check_cards(communicator *comm) {
    place *places = comm->shared->places;
    for (uint32_t a = 0; a < comm->ranks; a++)
        for (uint32_t b = a + 1; b < comm->ranks; b++)
            if (places[a].device == places[b].device)
                return hccl_fail(HCCL_E_PARA, "EI0014: ranktable verification: the value of device_id [%d] is duplicate: ranks %u and %u use the same card",
                                 places[a].device, a, b);
    return HCCL_OK;
}

static uint32_t absent(communicator *comm) {
    uint32_t rank = 0;
    while (rank < comm->ranks && atomic_load(&comm->shared->places[rank].has_joined)) rank++;
    return rank;
}

static int wait_for_all(communicator *comm) {
    double end = hccl_now() + hccl_seconds("HCCL_CONNECT_TIMEOUT", 120);
    place *mine = &comm->shared->places[comm->rank];
    for (;;) {
        uint32_t seen = atomic_load(&mine->bell), missing = absent(comm);
        if (missing == comm->ranks) return check_cards(comm);
        int has_died = 0;
        for (uint32_t rank = 0; rank < comm->ranks; rank++) {
            place *of = &comm->shared->places[rank];
            if (!atomic_load(&of->has_joined) || !hccl_is_gone(comm, rank)) continue;
            end = 0;
            if (!atomic_load(&of->has_left)) missing = rank, has_died = 1; /* else it timed out, as this rank does */
        }
        if (hccl_now() > end) {
            const char *why = has_died ? "is gone: Process has exited" : "did not join within HCCL_CONNECT_TIMEOUT";
            return hccl_fail(HCCL_E_TIMEOUT, "EI0006: Getting socket times out. Reason: rank [%u] of communicator %s %s", missing, comm->name, why);
        }
        hccl_sleep(mine, seen);
    }
}

static void introduce(communicator *comm, int32_t device) {
    place *mine = &comm->shared->places[comm->rank];
    char state;
    const char *rank = getenv("RANK");
    mine->world_rank = rank ? atoi(rank) : -1;
    mine->device = device;
    mine->pid = getpid();
    mine->started = began(getpid(), &state);
    atomic_store(&mine->has_joined, 1);
    for (uint32_t each = 0; each < comm->ranks; each++) hccl_wake(&comm->shared->places[each]);
}

static void configure(communicator *comm, const configuration *given) {
    const char *wanted = getenv("HCCL_DETERMINISTIC");
    comm->is_deterministic = __atomic_load_n(&wants_determinism, __ATOMIC_ACQUIRE) || (wanted && (!strcasecmp(wanted, "true") || !strcasecmp(wanted, "strict")));
    comm->exec_timeout_s = hccl_seconds("HCCL_EXEC_TIMEOUT", 1836);
    if (!given) return;
    if (given->deterministic != (uint32_t)NOT_SET && given->size > offsetof(configuration, deterministic)) comm->is_deterministic |= given->deterministic != 0;
    if (given->size > offsetof(configuration, name) + NAME_LENGTH && given->name[0]) snprintf(comm->name, NAME_LENGTH, "%s", given->name);
    if (given->version >= 8 && given->size > offsetof(configuration, exec_timeout) + 4 && given->exec_timeout > 0) comm->exec_timeout_s = given->exec_timeout;
}

static int remember(communicator *comm) {
    pthread_mutex_lock(&lock);
    int at = 0, room = (int)(sizeof known / sizeof *known);
    while (at < room && known[at]) at++;
    if (at < room) known[at] = comm;
    pthread_mutex_unlock(&lock);
    return at < room ? HCCL_OK : hccl_fail(HCCL_E_UNAVAIL, "EI0007: a process has no more than %d communicators here", room);
}

/* Operators that compute and communicate in one take a communicator's name. */
API int HcomGetCommHandleByGroup(const char *name, void **into) {
    *into = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] && !strcmp(known[i]->name, name)) *into = known[i];
    pthread_mutex_unlock(&lock);
    return *into ? HCCL_OK : hccl_fail(HCCL_E_PARA, "EI0003: In [HcomGetCommHandleByGroup], there is no communicator %s", name);
}

static void unmap(communicator *comm) {
    munmap(comm->shared, comm->bytes);
    free(comm);
}

void hccl_retain(communicator *comm) { __atomic_add_fetch(&comm->references, 1, __ATOMIC_ACQ_REL); }

void hccl_release(communicator *comm) {
    if (!__atomic_sub_fetch(&comm->references, 1, __ATOMIC_ACQ_REL)) unmap(comm);
}

/* Map the memory and announce this rank; waiting for the others comes later. */
static int enter(const char *root, uint32_t ranks, uint32_t rank, int32_t device, const configuration *config, communicator **into, int *file) {
    if (!ranks || ranks > MAX_RANKS) return hccl_fail(HCCL_E_PARA, "EI0003: %u ranks: between 1 and %d are emulated", ranks, MAX_RANKS);
    if (rank >= ranks) return hccl_fail(HCCL_E_PARA, "EI0003: In [HcclCommInitRootInfo], value [%u] for parameter [rank] is invalid: there are %u", rank, ranks);
    communicator *comm = calloc(1, sizeof *comm);
    if (!comm) return hccl_fail(HCCL_E_MEMORY, "EI0007: no host memory for a communicator");
    comm->ranks = ranks, comm->rank = rank, comm->references = 1;
    snprintf(comm->name, NAME_LENGTH, "hccl_%.*s", (int)strcspn(root, "\n"), root);
    for (char *each = comm->name; *each; each++) if (*each == ' ') *each = '_';
    configure(comm, config);
    int error = map(root, ranks, comm, file);
    if (error) {
        free(comm);
        return error;
    }
    introduce(comm, device);
    *into = comm;
    return HCCL_OK;
}

static int join(const char *root, uint32_t ranks, uint32_t rank, const configuration *config, void **into) {
    int32_t device = 0;
    int file = -1;
    communicator *comm = NULL;
    int error = aclrtGetDevice(&device) ? hccl_fail(HCCL_E_PARA, "no device is set in this thread") : enter(root, ranks, rank, device, config, &comm, &file);
    if (error) return error;
    error = wait_for_all(comm);
    if (!error) error = remember(comm);
    if (file >= 0) close(file);
    if (error) atomic_store(&comm->shared->places[rank].has_left, 1), unmap(comm);
    else *into = comm;
    return error;
}

/* --- the first operation of a rank: check that the others do the same --- */

static int is_inconsistent(communicator *comm, const char *what, uint32_t rank, long long mine, long long theirs) {
    return hccl_fail(HCCL_E_PARA, "EI0005: The arguments for collective communication are inconsistent between ranks: parameter[%s], rank %u [%lld], rank %u [%lld]",
                     what, comm->rank, mine, rank, theirs);
}

static int compare(communicator *comm, const agreement *mine, uint32_t rank) {
    const agreement *theirs = &comm->shared->places[rank].entries[mine->kind].what;
    if (theirs->dtype != mine->dtype) return is_inconsistent(comm, "dataType", rank, mine->dtype, theirs->dtype);
    if (theirs->count != mine->count) return is_inconsistent(comm, "count", rank, (long long)mine->count, (long long)theirs->count);
    if (theirs->op != mine->op) return is_inconsistent(comm, "op", rank, mine->op, theirs->op);
    if (theirs->root != mine->root) return is_inconsistent(comm, "root", rank, mine->root, theirs->root);
    return HCCL_OK;
}

/* Whether a rank waits in another collective while this one waits for it here. */
static int other_kind(place *of, const agreement *mine) {
    for (int kind = 0; kind < KINDS; kind++)
        if (kind != mine->kind && atomic_load(&of->entries[kind].is_posted) && of->entries[kind].what.sequence == mine->sequence) return kind;
    return -1;
}

int hccl_agree(communicator *comm, const agreement *mine) {
    place *places = comm->shared->places;
    if (comm->is_of_one_process || comm->known_kinds & 1u << mine->kind) return HCCL_OK;
    entry *posted = &places[comm->rank].entries[mine->kind];
    posted->what = *mine;
    atomic_store(&posted->is_posted, 1);
    for (uint32_t rank = 0; rank < comm->ranks; rank++) hccl_wake(&places[rank]);
    double since = hccl_now(), limit = hccl_seconds("HCCL_CONNECT_TIMEOUT", 120);
    for (uint32_t rank = 0; rank < comm->ranks;) {
        uint32_t seen = atomic_load(&places[comm->rank].bell);
        if (atomic_load(&places[rank].entries[mine->kind].is_posted)) {
            int error = compare(comm, mine, rank);
            if (error) return error;
            rank++;
            continue;
        }
        int kind = other_kind(&places[rank], mine);
        if (kind >= 0)
            return hccl_fail(HCCL_E_PARA, "EI0005: The arguments for collective communication are inconsistent between ranks: rank %u calls %s, rank %u %s",
                             comm->rank, hccl_kind_name(mine->kind), rank, hccl_kind_name(kind));
        if (hccl_is_gone(comm, rank) || hccl_now() - since > limit) {
            char state[200];
            hccl_describe_state(comm, rank, state, sizeof state);
            return hccl_fail(HCCL_E_TIMEOUT, "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time: rank %u waited %.1f s for rank [%u] in its first %s; %s",
                             comm->rank, hccl_now() - since, rank, hccl_kind_name(mine->kind), state);
        }
        hccl_sleep(&places[comm->rank], seen);
    }
    comm->known_kinds |= 1u << mine->kind;
    return HCCL_OK;
}

/* --- HCCL's functions --- */

API int HcclGetRootInfo(char *root) {
    if (!root) return hccl_fail(HCCL_E_PTR, "EI0003: rootInfo is null");
    memset(root, 0, ROOT_INFO_BYTES);
    fill_root(root, ROOT_INFO_BYTES);
    return HCCL_OK;
}

API int HcclGetRootInfoScalable(char *root) { return HcclGetRootInfo(root); }

API int HcclCommInitRootInfo(uint32_t ranks, const char *root, uint32_t rank, void **comm) { return join(root, ranks, rank, NULL, comm); }

API int HcclCommInitRootInfoConfig(uint32_t ranks, const char *root, uint32_t rank, const configuration *config, void **comm) {
    return join(root, ranks, rank, config, comm);
}

/* Several roots share the work of connecting thousands of ranks; here the first one does it all. */
API int HcclCommInitRootInfoScalable(uint32_t ranks, uint32_t roots, const char *root, uint32_t rank, uint32_t more, const configuration *config, void **comm) {
    if (!roots || more) return hccl_fail(HCCL_E_PARA, "EI0003: nRoot [%u] or nExtRoot [%u] is invalid", roots, more);
    return join(root, ranks, rank, config, comm);
}

/* The first rank of a sub-group creates its memory, and announces it to the others in that of the whole group. */
static int tell_of_subgroup(communicator *all, uint64_t id, uint32_t first, uint32_t ranks, char *root) {
    fill_root(root, sizeof all->shared->subgroups->root);
    for (int i = 0; i < MAX_SUBGROUPS; i++) {
        rendezvous *at = &all->shared->subgroups[i];
        uint32_t expected = 0;
        if (!atomic_compare_exchange_strong(&at->state, &expected, 1)) continue;
        at->id = id, at->first = first;
        memcpy(at->root, root, sizeof at->root);
        atomic_store(&at->to_come, ranks - 1);
        atomic_store(&at->state, ranks > 1 ? 2 : 0);
        for (uint32_t rank = 0; rank < all->ranks; rank++) hccl_wake(&all->shared->places[rank]);
        return HCCL_OK;
    }
    return hccl_fail(HCCL_E_UNAVAIL, "EI0007: more than %d sub-groups are being made at a time", MAX_SUBGROUPS);
}

static int hear_of_subgroup(communicator *all, uint64_t id, uint32_t first, char *root) {
    double end = hccl_now() + hccl_seconds("HCCL_CONNECT_TIMEOUT", 120);
    place *mine = &all->shared->places[all->rank];
    for (;;) {
        uint32_t seen = atomic_load(&mine->bell);
        for (int i = 0; i < MAX_SUBGROUPS; i++) {
            rendezvous *at = &all->shared->subgroups[i];
            if (atomic_load(&at->state) != 2 || at->id != id || at->first != first) continue;
            memcpy(root, at->root, sizeof at->root);
            if (atomic_fetch_sub(&at->to_come, 1) == 1) atomic_store(&at->state, 0);
            return HCCL_OK;
        }
        if (hccl_now() > end || hccl_is_gone(all, first))
            return hccl_fail(HCCL_E_TIMEOUT, "EI0006: Getting socket times out. Reason: rank [%u], the first of a sub-group, did not join", first);
        hccl_sleep(mine, seen);
    }
}

API int HcclCreateSubCommConfig(void **whole, uint32_t ranks, const uint32_t *ids, uint64_t id, uint32_t rank, const configuration *config, void **into) {
    if (!ids) { /* this rank does not take part */
        *into = NULL;
        return HCCL_OK;
    }
    communicator *all = *whole;
    char root[64] = {0};
    int error = rank ? hear_of_subgroup(all, id, ids[0], root) : tell_of_subgroup(all, id, ids[0], ranks, root);
    return error ? error : join(root, ranks, rank, config, into);
}

API int HcclCommInitAll(uint32_t count, const int32_t *devices, void **comms) {
    char root[64] = {0};
    int file = -1, error = HCCL_OK;
    fill_root(root, sizeof root);
    for (uint32_t rank = 0; rank < count && !error; rank++) {
        communicator *made = NULL;
        error = enter(root, count, rank, devices[rank], NULL, &made, &file);
        if (!error) made->is_of_one_process = 1, comms[rank] = made, error = remember(made);
    }
    if (file >= 0) close(file);
    return error ? error : check_cards(comms[0]);
}

API int HcclCommDestroy(void *given) {
    communicator *comm = given;
    if (!comm) return hccl_fail(HCCL_E_PTR, "EI0003: comm is null");
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == comm) known[i] = NULL;
    pthread_mutex_unlock(&lock);
    atomic_store(&comm->shared->places[comm->rank].has_left, 1);
    for (uint32_t rank = 0; rank < comm->ranks; rank++) hccl_wake(&comm->shared->places[rank]);
    hccl_release(comm);
    return HCCL_OK;
}

API int HcclGetCommAsyncError(communicator *comm, int *error) { *error = comm->error; return HCCL_OK; }
API int HcclGetRankSize(communicator *comm, uint32_t *ranks) { *ranks = comm->ranks; return HCCL_OK; }
API int HcclGetRankId(communicator *comm, uint32_t *rank) { *rank = comm->rank; return HCCL_OK; }
API uint32_t HcclGetCommConfigCapability(void) { return CAPABILITIES; }

API int HcclGetCommName(communicator *comm, char *name) {
    memcpy(name, comm->name, NAME_LENGTH);
    return HCCL_OK;
}

API int HcclSetConfig(int option, int32_t value) {
    if (option) return hccl_fail(HCCL_E_NOT_SUPPORT, "HcclSetConfig: the option %d is not emulated", option);
    __atomic_store_n(&wants_determinism, value, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i]) known[i]->is_deterministic = value;
    pthread_mutex_unlock(&lock);
    return HCCL_OK;
}

API int HcclGetConfig(int option, int32_t *value) {
    *value = __atomic_load_n(&wants_determinism, __ATOMIC_ACQUIRE);
    return option ? hccl_fail(HCCL_E_NOT_SUPPORT, "HcclGetConfig: the option %d is not emulated", option) : HCCL_OK;
}
