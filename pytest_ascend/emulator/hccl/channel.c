/* Moving bytes between ranks, over rings in shared memory. One thread moves all transfers of an operation at once, so
 * that no order of sends and receives within it can deadlock. */
#define _GNU_SOURCE
#include "hccl.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_ROUND_MS = 200 };

void hccl_wake(place *of) {
    atomic_fetch_add(&of->bell, 1);
    if (atomic_load(&of->sleepers)) syscall(SYS_futex, &of->bell, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* Sleep until the bell changes from "seen", but no longer than the interval at which to check that all are alive. */
void hccl_sleep(place *mine, uint32_t seen) {
    struct timespec limit = {.tv_nsec = LOOK_ROUND_MS * 1000000L};
    atomic_fetch_add(&mine->sleepers, 1);
    syscall(SYS_futex, &mine->bell, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&mine->sleepers, 1);
}

/* Record why the communicator cannot continue, for all ranks; the first one to notice reports it. */
int hccl_break(communicator *comm, const char *format, ...) {
    shared_state *shared = comm->shared;
    uint32_t expected = 0;
    if (atomic_compare_exchange_strong(&shared->failed, &expected, 1)) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(shared->failure, sizeof shared->failure, format, arguments);
        va_end(arguments);
        atomic_store(&shared->failed, 2);
        for (uint32_t rank = 0; rank < comm->ranks; rank++) hccl_wake(&shared->places[rank]);
    }
    return hccl_broken(comm);
}

int hccl_broken(communicator *comm) {
    if (!atomic_load(&comm->shared->failed)) return EMU_OK;
    for (int i = 0; i < 1000 && atomic_load(&comm->shared->failed) != 2; i++) usleep(100);
    comm->error = strstr(comm->shared->failure, "EI0005") ? HCCL_E_PARA : HCCL_E_REMOTE;
    return emu_fail(EMU_COLLECTIVE_TIMEOUT, "emulated HCCL, rank %u of communicator %s: %s", comm->rank, comm->name, comm->shared->failure);
}

static char *buffer(communicator *comm, uint32_t from, uint32_t to) {
    return comm->buffers + ((size_t)from * comm->ranks + to) * comm->ring_bytes;
}

/* Copy between a ring and memory, from position "at" in the ring's stream of bytes. */
static void into_ring(char *bytes, size_t size, uint64_t at, const char *data, uint64_t count) {
    uint64_t start = at % size, first = count < size - start ? count : size - start;
    memcpy(bytes + start, data, first);
    memcpy(bytes, data + first, count - first);
}

static void out_of_ring(const char *bytes, size_t size, uint64_t at, char *data, uint64_t count) {
    uint64_t start = at % size, first = count < size - start ? count : size - start;
    memcpy(data, bytes + start, first);
    memcpy(data + first, bytes, count - first);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int is_done(const transfer *each) { return each->moved == sizeof each->header + each->bytes; }

static int send_some(communicator *comm, transfer *each) {
    ring *to = &comm->shared->rings[comm->rank][each->peer];
    char *bytes = buffer(comm, comm->rank, each->peer);
    uint64_t written = atomic_load(&to->written), room = comm->ring_bytes - (written - atomic_load(&to->read)), before = each->moved;
    while (room && !is_done(each)) {
        int is_header = each->moved < sizeof each->header;
        uint64_t at = is_header ? each->moved : each->moved - sizeof each->header;
        uint64_t part = least(room, (is_header ? sizeof each->header : each->bytes) - at);
        into_ring(bytes, comm->ring_bytes, written, (is_header ? each->header : each->data) + at, part);
        written += part, room -= part, each->moved += part;
    }
    atomic_store(&to->written, written);
    return each->moved != before;
}

static int disagree(communicator *comm, uint32_t peer, const char *what, long long mine, long long theirs) {
    return hccl_break(comm,
                      "EI0005: The arguments for collective communication are inconsistent between ranks: parameter[%s], rank %u [%lld], rank %u [%lld]",
                      what, comm->rank, mine, peer, theirs);
}

static int compare(communicator *comm, const transfer *each) {
    agreement theirs;
    uint64_t bytes;
    memcpy(&theirs, each->header, sizeof theirs);
    memcpy(&bytes, each->header + sizeof theirs, sizeof bytes);
    const agreement *mine = &each->what;
    if (theirs.kind != mine->kind)
        return hccl_break(comm, "EI0005: The arguments for collective communication are inconsistent between ranks: rank %u calls %s, rank %u %s",
                          comm->rank, hccl_kind_name(mine->kind), each->peer, hccl_kind_name(theirs.kind));
    if (theirs.dtype != mine->dtype) return disagree(comm, each->peer, "dataType", mine->dtype, theirs.dtype);
    if (theirs.count != mine->count) return disagree(comm, each->peer, "count", (long long)mine->count, (long long)theirs.count);
    if (theirs.op != mine->op) return disagree(comm, each->peer, "op", mine->op, theirs.op);
    if (theirs.root != mine->root) return disagree(comm, each->peer, "root", mine->root, theirs.root);
    if (bytes != each->bytes) return disagree(comm, each->peer, "bytes", (long long)each->bytes, (long long)bytes);
    if (theirs.sequence != mine->sequence)
        return disagree(comm, each->peer, "sequence", (long long)mine->sequence, (long long)theirs.sequence);
    return EMU_OK;
}

static int receive_some(communicator *comm, transfer *each, int *error) {
    ring *from = &comm->shared->rings[each->peer][comm->rank];
    const char *bytes = buffer(comm, each->peer, comm->rank);
    uint64_t read = atomic_load(&from->read), there = atomic_load(&from->written) - read, before = each->moved;
    while (there && !is_done(each)) {
        int is_header = each->moved < sizeof each->header;
        uint64_t at = is_header ? each->moved : each->moved - sizeof each->header;
        uint64_t part = least(there, (is_header ? sizeof each->header : each->bytes) - at);
        out_of_ring(bytes, comm->ring_bytes, read, (is_header ? each->header : each->data) + at, part);
        read += part, there -= part, each->moved += part;
        if (is_header && each->moved == sizeof each->header && (*error = compare(comm, each))) break;
    }
    atomic_store(&from->read, read);
    return each->moved != before;
}

/* Go once through the list; report how many are left and whether anything moved. Of several transfers with one peer in
 * one direction, the first goes first. */
static int go_through(communicator *comm, transfer *list, int count, int *moved) {
    uint32_t busy[2] = {0, 0}, touched = 0;
    int error = EMU_OK, left = 0;
    for (int i = 0; i < count && !error; i++) {
        transfer *each = &list[i];
        uint32_t bit = 1u << each->peer;
        if (is_done(each)) continue;
        if (!(busy[each->receives] & bit) && (each->receives ? receive_some(comm, each, &error) : send_some(comm, each))) touched |= bit;
        if (!is_done(each)) busy[each->receives] |= bit, left++;
    }
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (touched & 1u << rank) hccl_wake(&comm->shared->places[rank]);
    *moved = touched != 0;
    return error ? -1 : left;
}

/* Whom the others wait for: a rank that is gone, else one that is stopped, else one that has not begun what this rank is
   at, else the peer. */
static uint32_t culprit(communicator *comm, const transfer *list, int count) {
    uint32_t peer = comm->rank;
    for (int i = count; i-- > 0;)
        if (!is_done(&list[i])) peer = list[i].peer;
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (rank != comm->rank && hccl_is_gone(comm, rank)) return rank;
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (rank != comm->rank && hccl_is_stopped(comm, rank)) return rank;
    if (list[0].what.kind != POINT_TO_POINT)
        for (uint32_t rank = 0; rank < comm->ranks; rank++)
            if (atomic_load(&comm->shared->places[rank].entered) < list[0].what.sequence) return rank;
    return peer;
}

static int gone(communicator *comm, const transfer *list, int count, uint32_t rank, double waited_s) {
    char state[200];
    hccl_describe_state(comm, rank, state, sizeof state);
    (void)count;
    return hccl_break(comm,
                      "EI0002: The wait execution of the Notify register times out: nothing came from remote rank [%u] after %.1f s in %s %llu, as rank %u found; %s",
                      rank, waited_s, hccl_kind_name(list[0].what.kind), (unsigned long long)list[0].what.sequence, comm->rank, state);
}

int hccl_move(communicator *comm, transfer *list, int count) {
    place *mine = &comm->shared->places[comm->rank];
    double since = hccl_now(), looked = since;
    for (;;) {
        uint32_t seen = atomic_load(&mine->bell);
        int moved, left = go_through(comm, list, count, &moved), error = hccl_broken(comm);
        if (error) return error;
        if (left <= 0) return left ? EMU_COLLECTIVE_TIMEOUT : EMU_OK;
        double now = hccl_now();
        if (moved) {
            since = now;
            continue;
        }
        if (now - looked > LOOK_ROUND_MS * 1e-3) {
            looked = now;
            uint32_t rank = culprit(comm, list, count);
            /* What a rank sent before it exited is still there: it is missed only once nothing moves any more. */
            if ((now - since > 2e-3 * LOOK_ROUND_MS && hccl_is_gone(comm, rank)) || now - since > comm->exec_timeout_s)
                return gone(comm, list, count, rank, now - since);
        }
        hccl_sleep(mine, seen);
    }
}
