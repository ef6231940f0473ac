/* HCCL's collectives and point-to-point: each call becomes an operation, which a thread of its stream executes. */
#include "hccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t hccl_size_of(int dtype) {
    static const size_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 0, 1, 1, 1, 1};
    return dtype < 0 || dtype > FP8_E8M0 ? 0 : sizes[dtype];
}

const char *hccl_kind_name(int kind) {
    static const char *const names[] = {"AllReduce", "Reduce", "ReduceScatter", "ReduceScatterV", "Broadcast", "Scatter",
                                        "AllGather", "AllGatherV", "AlltoAll", "AlltoAllV", "Barrier", "SendRecv"};
    return kind < 0 || kind >= KINDS ? "unknown" : names[kind];
}

/* --- creating an operation --- */

static void add(operation *to, uint32_t peer, int receives, const void *data, uint64_t bytes) {
    transfer *made = &to->list[to->transfers++];
    *made = (transfer){.peer = peer, .receives = receives, .data = (char *)data, .bytes = bytes, .what = to->what};
    if (receives) return;
    memcpy(made->header, &to->what, sizeof to->what);
    memcpy(made->header + sizeof to->what, &bytes, sizeof bytes);
}

static void sends(operation *to, uint32_t peer, const void *data, uint64_t bytes) { add(to, peer, 0, data, bytes); }
static void receives(operation *to, uint32_t peer, const void *data, uint64_t bytes) { add(to, peer, 1, data, bytes); }

static void copies(operation *to, const void *from, void *into, uint64_t bytes) {
    to->copy_from = from, to->copy_to = into, to->copy_bytes = bytes;
}

static int check(communicator *comm, int kind, int dtype, int op, uint64_t count, int root, const void *buffer) {
    const char *name = hccl_kind_name(kind);
    if (!comm) return hccl_fail(HCCL_E_PTR, "EI0003: In [Hccl%s], comm is null", name);
    if (!hccl_size_of(dtype)) return hccl_fail(HCCL_E_NOT_SUPPORT, "EI0003: In [Hccl%s], value [%d] for parameter [dataType] is invalid", name, dtype);
    if (kind <= REDUCE_SCATTER_V && !hccl_can_reduce(dtype, op))
        return hccl_fail(HCCL_E_NOT_SUPPORT, "EI0003: In [Hccl%s], value [dataType %d, op %d] is invalid: the chip has no such reduction", name, dtype, op);
    if (root >= (int)comm->ranks)
        return hccl_fail(HCCL_E_PARA, "EI0003: In [Hccl%s], value [%d] for parameter [root] is invalid: the communicator has %u ranks", name, root, comm->ranks);
    if (count && !buffer) return hccl_fail(HCCL_E_PTR, "EI0003: In [Hccl%s], a buffer is null", name);
    return comm->error ? hccl_fail(comm->error, "the communicator is broken: %s", comm->shared->failure) : HCCL_OK;
}

/* Return a new operation with room for some transfers, after all ranks agreed on it if it is the first of its kind;
 * otherwise NULL, with the error in "error". */
static operation *begin(communicator *comm, int kind, int dtype, int op, uint64_t count, int root, const void *buffer, int room, int *error) {
    *error = check(comm, kind, dtype, op, count, root, buffer);
    if (*error) return NULL;
    operation *made = calloc(1, sizeof *made + (size_t)room * sizeof(transfer));
    if (!made) {
        *error = hccl_fail(HCCL_E_MEMORY, "EI0007: no host memory for an operation");
        return NULL;
    }
    made->comm = comm;
    made->room = room;
    made->what = (agreement){.count = count, .kind = kind, .dtype = dtype, .op = op, .root = hccl_fault_root(root, kind)};
    if (kind == POINT_TO_POINT) return made;
    made->what.sequence = __atomic_add_fetch(&comm->next_sequence, 1, __ATOMIC_ACQ_REL);
    *error = hccl_agree(comm, &made->what);
    if (!*error) return made;
    free(made);
    return NULL;
}

/* --- executing it --- */

static int move_list(operation *given) { return given->transfers ? hccl_move(given->comm, given->list, given->transfers) : EMU_OK; }

/* Sum this rank's share of what all ranks have sent. */
static void sum(const operation *given, const char *const *parts, char *into, uint64_t count) {
    uint32_t order[MAX_RANKS];
    hccl_order(given->comm, &given->what, given->comm->rank, order);
    memcpy(into, parts[order[0]], count * hccl_size_of(given->what.dtype));
    for (uint32_t i = 1; i < given->comm->ranks; i++) hccl_fold(into, parts[order[i]], count, given->what.dtype, given->what.op);
    hccl_fault_sum(given, parts, order, into, count);
}

/* Send each rank its share, and receive this rank's own from all. */
static int gather_share(operation *given, char *room, const char **parts) {
    uint32_t mine = given->comm->rank, ranks = given->comm->ranks;
    uint64_t width = hccl_size_of(given->what.dtype), bytes = given->counts[mine] * width;
    given->transfers = 0;
    parts[mine] = given->in + given->offsets[hccl_fault_share(given, mine)] * width;
    for (uint32_t i = 1; i < ranks; i++) {
        uint32_t to = (mine + i) % ranks, from = (mine + ranks - i) % ranks;
        sends(given, to, given->in + given->offsets[hccl_fault_share(given, to)] * width, given->counts[to] * width);
        parts[from] = room + (i - 1) * bytes;
        receives(given, from, parts[from], bytes);
    }
    return move_list(given);
}

/* Send the share summed here, and receive the others' shares. */
static int spread_shares(operation *given, const char *share) {
    uint32_t mine = given->comm->rank, ranks = given->comm->ranks;
    uint64_t width = hccl_size_of(given->what.dtype);
    int only = given->what.kind == REDUCE ? given->what.root : -1;
    given->transfers = 0;
    for (uint32_t i = 1; i < ranks; i++) {
        uint32_t to = (mine + i) % ranks, from = (mine + ranks - i) % ranks;
        if (only < 0 || (int)to == only) sends(given, to, share, given->counts[mine] * width);
        if (only < 0 || (int)mine == only) receives(given, from, given->out + given->offsets[from] * width, given->counts[from] * width);
    }
    if (only < 0 || (int)mine == only) memcpy(given->out + given->offsets[mine] * width, share, given->counts[mine] * width);
    return move_list(given);
}

static int reduce(operation *given) {
    uint64_t count = given->counts[given->comm->rank], bytes = count * hccl_size_of(given->what.dtype);
    const char *parts[MAX_RANKS];
    char *room = malloc(bytes * given->comm->ranks + 1);
    if (!room) return hccl_break(given->comm, "EI0007: rank %u has no host memory for a sum", given->comm->rank);
    char *share = room + bytes * (given->comm->ranks - 1);
    int error = gather_share(given, room, parts);
    if (!error) sum(given, parts, share, count);
    if (!error && given->what.kind <= REDUCE) error = spread_shares(given, share);
    else if (!error) memcpy(given->out, share, bytes);
    free(room);
    return error;
}

static int carry_out(operation *given) {
    if (given->what.kind <= REDUCE_SCATTER_V) return reduce(given);
    int error = move_list(given);
    if (!error && given->copy_bytes && given->copy_to != given->copy_from) memmove(given->copy_to, given->copy_from, given->copy_bytes);
    return error;
}

static void await_turn(const operation *given) {
    while (atomic_load(&given->comm->served) != given->ticket) usleep(50);
}

static void end_turn(operation *given) {
    atomic_fetch_add(&given->comm->served, 1);
    hccl_release(given->comm);
    free(given);
}

static int run(void *data) {
    operation *given = data;
    communicator *comm = given->comm;
    char *kept = NULL;
    await_turn(given);
    if (given->what.sequence) atomic_store(&comm->shared->places[comm->rank].entered, given->what.sequence);
    hccl_fault_before(given, &kept);
    int error = hccl_broken(comm);
    if (!error) error = carry_out(given);
    if (!error) hccl_fault_after(given, kept);
    free(kept);
    end_turn(given);
    return error;
}

static int run_eagerly(void *data) {
    operation *given = data;
    return emu_timed(hccl_kind_name(given->what.kind), run, given, given->stream);
}

/* Wait for its turn among the operations of the communicator, whatever their streams. */
static operation *with_turn(operation *given) {
    given->ticket = __atomic_fetch_add(&given->comm->tickets, 1, __ATOMIC_ACQ_REL);
    hccl_retain(given->comm);
    return given;
}

/* --- in a captured graph: the operation is a template, and each execution of the graph runs a copy of it --- */

static operation *copy_of(const operation *pattern) {
    size_t size = sizeof *pattern + (size_t)pattern->room * sizeof(transfer);
    operation *made = malloc(size);
    if (!made) return NULL;
    memcpy(made, pattern, size);
    if (made->what.sequence) made->what.sequence = __atomic_add_fetch(&made->comm->next_sequence, 1, __ATOMIC_ACQ_REL);
    for (int i = 0; i < made->transfers; i++) {
        made->list[i].what.sequence = made->what.sequence;
        memcpy(made->list[i].header, &made->list[i].what, sizeof made->what);
    }
    return with_turn(made);
}

static pthread_mutex_t captured_lock = PTHREAD_MUTEX_INITIALIZER;

/* Take the first of the waiting copies, or add one behind them. */
static operation *waiting(operation *pattern, operation *added) {
    operation *first = NULL, **last = &pattern->next;
    pthread_mutex_lock(&captured_lock);
    if (added) {
        added->next = NULL;
        while (*last) last = &(*last)->next;
        *last = added;
    } else if ((first = pattern->next)) pattern->next = first->next;
    pthread_mutex_unlock(&captured_lock);
    return first;
}

static void tell(void *data, int when) {
    operation *pattern = data, *made = NULL;
    if (when == EMU_GIVEN && (made = copy_of(pattern))) waiting(pattern, made);
    if (when == EMU_OVER) {
        if (!pattern->was_run && (made = waiting(pattern, NULL))) { /* a task before it failed */
            await_turn(made);
            end_turn(made);
        }
        pattern->was_run = 0;
    }
    if (when == EMU_DESTROYED) {
        hccl_release(pattern->comm);
        free(pattern);
    }
}

static int run_captured(void *data) {
    operation *pattern = *(operation **)data, *made = waiting(pattern, NULL);
    pattern->was_run = 1;
    if (!made) made = copy_of(pattern); /* in the branch of a conditional task, or twice in an execution */
    return made ? run(made) : hccl_fail(HCCL_E_MEMORY, "EI0007: no host memory for an operation");
}

static int submit(operation *given, const void *in, void *out, uint64_t out_bytes, void *stream) {
    given->in = in, given->out = out, given->out_bytes = out_bytes, given->stream = stream;
    if (!emu_is_captured(stream)) return emu_stream_submit(stream, run_eagerly, with_turn(given)) ? HCCL_E_MEMORY : HCCL_OK;
    hccl_retain(given->comm);
    return emu_capture_collective(stream, hccl_kind_name(given->what.kind), run_captured, tell, given) ? HCCL_E_MEMORY : HCCL_OK;
}

/* --- reductions --- */

/* Divide data that every rank sees as a whole into shares; small data is handled by the first ranks alone. */
static void divide(operation *given, uint64_t count) {
    uint64_t ranks = given->comm->ranks, width = hccl_size_of(given->what.dtype);
    uint64_t line = 64 / (width > 64 ? 64 : width), each = (count + ranks - 1) / ranks;
    each = (each + line - 1) / line * line;
    for (uint64_t rank = 0, at = 0; rank < ranks; rank++) {
        given->offsets[rank] = at;
        given->counts[rank] = count - at < each ? count - at : each;
        at += given->counts[rank];
    }
}

static int reduce_whole(int kind, const void *in, void *out, uint64_t count, int dtype, int op, int root, communicator *comm, void *stream) {
    int error;
    operation *made = begin(comm, kind, dtype, op, count, root, in, 2 * MAX_RANKS, &error);
    if (!made) return error;
    divide(made, count);
    return submit(made, in, out, root < 0 || root == (int)comm->rank ? count * hccl_size_of(dtype) : 0, stream);
}

API int HcclAllReduce(void *in, void *out, uint64_t count, int dtype, int op, communicator *comm, void *stream) {
    return reduce_whole(ALL_REDUCE, in, out, count, dtype, op, -1, comm, stream);
}

API int HcclReduce(void *in, void *out, uint64_t count, int dtype, int op, uint32_t root, communicator *comm, void *stream) {
    return reduce_whole(REDUCE, in, out, count, dtype, op, (int)root, comm, stream);
}

API int HcclReduceScatter(void *in, void *out, uint64_t count, int dtype, int op, communicator *comm, void *stream) {
    int error;
    operation *made = begin(comm, REDUCE_SCATTER, dtype, op, count, -1, in, 2 * MAX_RANKS, &error);
    if (!made) return error;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) made->counts[rank] = count, made->offsets[rank] = rank * count;
    return submit(made, in, out, count * hccl_size_of(dtype), stream);
}

API int HcclReduceScatterV(void *in, const uint64_t *counts, const uint64_t *offsets, void *out, uint64_t count, int dtype, int op, communicator *comm, void *stream) {
    int error;
    operation *made = begin(comm, REDUCE_SCATTER_V, dtype, op, 0, -1, in, 2 * MAX_RANKS, &error);
    if (!made) return error;
    memcpy(made->counts, counts, comm->ranks * sizeof *counts);
    memcpy(made->offsets, offsets, comm->ranks * sizeof *offsets);
    return submit(made, in, out, count * hccl_size_of(dtype), stream);
}

/* --- moving data --- */

API int HcclBroadcast(void *buffer, uint64_t count, int dtype, uint32_t root, communicator *comm, void *stream) {
    int error;
    operation *made = begin(comm, BROADCAST, dtype, 0, count, (int)root, buffer, MAX_RANKS, &error);
    if (!made) return error;
    uint64_t bytes = count * hccl_size_of(dtype);
    uint32_t from = (uint32_t)made->what.root;
    for (uint32_t rank = 0; rank < comm->ranks && comm->rank == from; rank++)
        if (rank != from) sends(made, rank, buffer, bytes);
    if (comm->rank != from) receives(made, from, buffer, bytes);
    return submit(made, buffer, buffer, comm->rank == from ? 0 : bytes, stream);
}

API int HcclScatter(void *in, void *out, uint64_t count, int dtype, uint32_t root, communicator *comm, void *stream) {
    int error;
    operation *made = begin(comm, SCATTER, dtype, 0, count, (int)root, out, MAX_RANKS, &error);
    if (!made) return error;
    uint64_t bytes = count * hccl_size_of(dtype);
    for (uint32_t rank = 0; rank < comm->ranks && comm->rank == root; rank++)
        if (rank != root) sends(made, rank, (char *)in + rank * bytes, bytes);
    if (comm->rank != root) receives(made, root, out, bytes);
    else copies(made, (char *)in + root * bytes, out, bytes);
    return submit(made, in, out, bytes, stream);
}

/* Every rank sends its data to every other; "at" is the byte offset at which a rank's data is placed. */
static int show_all(operation *made, const void *in, uint64_t bytes, char *out, const uint64_t *at, const uint64_t *sizes, void *stream) {
    communicator *comm = made->comm;
    uint64_t all = 0;
    for (uint32_t i = 1; i < comm->ranks; i++) {
        uint32_t to = (comm->rank + i) % comm->ranks, from = (comm->rank + comm->ranks - i) % comm->ranks;
        sends(made, to, in, bytes);
        receives(made, from, out + at[from], sizes[from]);
    }
    copies(made, in, out + at[comm->rank], bytes);
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        made->offsets[rank] = at[rank], made->counts[rank] = sizes[rank];
        all = at[rank] + sizes[rank] > all ? at[rank] + sizes[rank] : all;
    }
    return submit(made, in, out, all, stream);
}

API int HcclAllGather(void *in, void *out, uint64_t count, int dtype, communicator *comm, void *stream) {
    int error;
    uint64_t at[MAX_RANKS], sizes[MAX_RANKS], bytes = count * hccl_size_of(dtype);
    operation *made = begin(comm, ALL_GATHER, dtype, 0, count, -1, out, 2 * MAX_RANKS, &error);
    for (uint32_t rank = 0; made && rank < comm->ranks; rank++) at[rank] = rank * bytes, sizes[rank] = bytes;
    return made ? show_all(made, in, bytes, out, at, sizes, stream) : error;
}

API int HcclAllGatherV(void *in, uint64_t count, void *out, const uint64_t *counts, const uint64_t *offsets, int dtype, communicator *comm, void *stream) {
    int error;
    uint64_t at[MAX_RANKS], sizes[MAX_RANKS], width = hccl_size_of(dtype);
    operation *made = begin(comm, ALL_GATHER_V, dtype, 0, 0, -1, out, 2 * MAX_RANKS, &error);
    for (uint32_t rank = 0; made && rank < comm->ranks; rank++) at[rank] = offsets[rank] * width, sizes[rank] = counts[rank] * width;
    return made ? show_all(made, in, count * width, out, at, sizes, stream) : error;
}

/* Every rank has different data for every other. All sizes and offsets are in bytes. */
static int exchange(operation *made, const char *in, const uint64_t *send_at, const uint64_t *send, char *out, const uint64_t *receive_at,
                    const uint64_t *receive, void *stream) {
    communicator *comm = made->comm;
    uint64_t all = 0;
    for (uint32_t i = 1; i < comm->ranks; i++) {
        uint32_t to = (comm->rank + i) % comm->ranks, from = (comm->rank + comm->ranks - i) % comm->ranks;
        sends(made, to, in + send_at[to], send[to]);
        receives(made, from, out + receive_at[from], receive[from]);
    }
    copies(made, in + send_at[comm->rank], out + receive_at[comm->rank], send[comm->rank]);
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        made->offsets[rank] = receive_at[rank], made->counts[rank] = receive[rank];
        all = receive_at[rank] + receive[rank] > all ? receive_at[rank] + receive[rank] : all;
    }
    return submit(made, in, out, all, stream);
}

API int HcclAlltoAllV(const void *in, const uint64_t *counts, const uint64_t *offsets, int dtype, void *out, const uint64_t *out_counts,
                      const uint64_t *out_offsets, int out_dtype, communicator *comm, void *stream) {
    int error;
    uint64_t send_at[MAX_RANKS], send[MAX_RANKS], receive_at[MAX_RANKS], receive[MAX_RANKS];
    uint64_t width = hccl_size_of(dtype), out_width = hccl_size_of(out_dtype);
    operation *made = begin(comm, ALL_TO_ALL_V, dtype, 0, 0, -1, NULL, 2 * MAX_RANKS, &error);
    for (uint32_t rank = 0; made && rank < comm->ranks; rank++) {
        send_at[rank] = offsets[rank] * width, send[rank] = counts[rank] * width;
        receive_at[rank] = out_offsets[rank] * out_width, receive[rank] = out_counts[rank] * out_width;
    }
    return made ? exchange(made, in, send_at, send, out, receive_at, receive, stream) : error;
}

API int HcclAlltoAll(const void *in, uint64_t count, int dtype, void *out, uint64_t out_count, int out_dtype, communicator *comm, void *stream) {
    int error;
    uint64_t at[MAX_RANKS], sizes[MAX_RANKS], bytes = count * hccl_size_of(dtype);
    operation *made = begin(comm, ALL_TO_ALL, dtype, 0, count, -1, in, 2 * MAX_RANKS, &error);
    if (made && (out_count != count || out_dtype != dtype)) {
        free(made);
        return hccl_fail(HCCL_E_PARA, "EI0003: In [HcclAlltoAll], what is sent and what is received have different sizes");
    }
    for (uint32_t rank = 0; made && rank < comm->ranks; rank++) at[rank] = rank * bytes, sizes[rank] = bytes;
    return made ? exchange(made, in, at, sizes, out, at, sizes, stream) : error;
}

/* The matrix has the sizes that each rank (row) sends to each (column), so that no rank has to be told the rest. */
API int HcclAlltoAllVC(const void *in, const uint64_t *matrix, int dtype, void *out, int out_dtype, communicator *comm, void *stream) {
    uint64_t counts[MAX_RANKS], offsets[MAX_RANKS], out_counts[MAX_RANKS], out_offsets[MAX_RANKS], at = 0, out_at = 0;
    for (uint32_t rank = 0; comm && rank < comm->ranks; rank++) {
        counts[rank] = matrix[comm->rank * comm->ranks + rank], out_counts[rank] = matrix[rank * comm->ranks + comm->rank];
        offsets[rank] = at, out_offsets[rank] = out_at;
        at += counts[rank], out_at += out_counts[rank];
    }
    return HcclAlltoAllV(in, counts, offsets, dtype, out, out_counts, out_offsets, out_dtype, comm, stream);
}

API int HcclBarrier(communicator *comm, void *stream) {
    int error;
    operation *made = begin(comm, BARRIER, INT8, 0, 0, -1, NULL, 2 * MAX_RANKS, &error);
    uint64_t nothing[MAX_RANKS] = {0};
    return made ? exchange(made, NULL, nothing, nothing, NULL, nothing, nothing, stream) : error;
}

/* --- point to point --- */

typedef struct {
    int receives; /* HCCL_SEND 0, HCCL_RECV 1 */
    void *data;
    uint64_t count;
    int dtype;
    uint32_t peer;
} item;

API int HcclBatchSendRecv(const item *items, uint32_t count, communicator *comm, void *stream) {
    int error = HCCL_OK;
    for (uint32_t i = 0; i < count && !error; i++) {
        error = check(comm, POINT_TO_POINT, items[i].dtype, 0, items[i].count, (int)items[i].peer, items[i].data);
    }
    operation *made = error ? NULL : begin(comm, POINT_TO_POINT, INT8, 0, 0, -1, NULL, (int)count, &error);
    if (!made) return error;
    for (uint32_t i = 0; i < count; i++) {
        made->what.count = items[i].count, made->what.dtype = items[i].dtype;
        add(made, items[i].peer, items[i].receives, items[i].data, items[i].count * hccl_size_of(items[i].dtype));
        if (items[i].receives) made->out = items[i].data, made->out_bytes = items[i].count * hccl_size_of(items[i].dtype);
    }
    return submit(made, NULL, made->out, made->out_bytes, stream);
}

/* Between HcclGroupStart and HcclGroupEnd, sends and receives are collected, and go together. */
enum { GROUP_ROOM = 1024 };
static __thread int group_depth;
static __thread struct { item what; communicator *comm; void *stream; } *grouped;
static __thread uint32_t grouped_count;

API int HcclGroupStart(void) {
    if (!grouped) grouped = calloc(GROUP_ROOM, sizeof *grouped);
    if (!grouped) return hccl_fail(HCCL_E_MEMORY, "EI0007: no host memory for a group of operations");
    group_depth++;
    return HCCL_OK;
}

API int HcclGroupEnd(void) {
    if (!group_depth) return hccl_fail(HCCL_E_PARA, "EI0003: HcclGroupEnd without HcclGroupStart");
    if (--group_depth) return HCCL_OK;
    int error = HCCL_OK;
    item items[GROUP_ROOM];
    for (uint32_t first = 0; first < grouped_count && !error; first++) {
        uint32_t count = 0;
        communicator *comm = grouped[first].comm;
        if (!comm) continue; /* it was sent with an earlier one */
        for (uint32_t i = first; i < grouped_count; i++)
            if (grouped[i].comm == comm && grouped[i].stream == grouped[first].stream) items[count++] = grouped[i].what, grouped[i].comm = NULL;
        error = HcclBatchSendRecv(items, count, comm, grouped[first].stream);
    }
    grouped_count = 0;
    return error;
}

static int single(int is_received, void *data, uint64_t count, int dtype, uint32_t peer, communicator *comm, void *stream) {
    item made = {is_received, data, count, dtype, peer};
    if (!group_depth) return HcclBatchSendRecv(&made, 1, comm, stream);
    if (grouped_count == GROUP_ROOM) return hccl_fail(HCCL_E_UNAVAIL, "EI0007: more than %d operations in a group", GROUP_ROOM);
    grouped[grouped_count].what = made, grouped[grouped_count].comm = comm, grouped[grouped_count++].stream = stream;
    return HCCL_OK;
}

API int HcclSend(void *data, uint64_t count, int dtype, uint32_t peer, communicator *comm, void *stream) {
    return single(0, data, count, dtype, peer, comm, stream);
}

API int HcclRecv(void *data, uint64_t count, int dtype, uint32_t peer, communicator *comm, void *stream) {
    return single(1, data, count, dtype, peer, comm, stream);
}
