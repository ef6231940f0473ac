/* Shared declarations of the emulated HCCL. A communicator is one piece of anonymous shared memory, which every rank
 * maps; in it, each pair of ranks has a byte ring for each direction. All collectives consist of transfers over these
 * rings, and of sums that each rank computes for its share. */
#ifndef PYTEST_ASCEND_HCCL_H
#define PYTEST_ASCEND_HCCL_H

#include "emulated.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAX_RANKS = 16, NAME_LENGTH = 128, ROOT_INFO_BYTES = 4108, MAX_SUBGROUPS = 64, FAILURE_LENGTH = 640 };

/* HcclResult */
enum { HCCL_OK, HCCL_E_PARA, HCCL_E_PTR, HCCL_E_MEMORY, HCCL_E_INTERNAL, HCCL_E_NOT_SUPPORT, HCCL_E_UNAVAIL = 7,
       HCCL_E_SYSCALL, HCCL_E_TIMEOUT, HCCL_E_REMOTE = 21 };

/* HcclDataType and HcclReduceOp */
enum { INT8, INT16, INT32, FP16, FP32, INT64, UINT64, UINT8, UINT16, UINT32, FP64, BF16, INT128, HIF8 = 14, FP8_E4M3, FP8_E5M2, FP8_E8M0 };
enum { SUM, PROD, MAX, MIN };

typedef enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V, BROADCAST, SCATTER, ALL_GATHER, ALL_GATHER_V,
               ALL_TO_ALL, ALL_TO_ALL_V, BARRIER, POINT_TO_POINT, KINDS } hccl_kind;

/* What all ranks have to agree on in a collective; in point-to-point, sender and receiver. */
typedef struct {
    uint64_t sequence; /* number of this collective in this communicator */
    uint64_t count;    /* 0 if ranks may differ */
    int32_t kind, dtype, op, root;
} agreement;

/* The first collective of each kind, as a rank began it: HCCL then sets up its links, and compares. */
typedef struct {
    _Atomic uint32_t is_posted;
    agreement what;
} entry;

/* What one rank publishes to the others about itself. */
typedef struct {
    _Atomic uint32_t has_joined, has_left;
    _Atomic int32_t pid, device, world_rank;
    _Atomic uint64_t started;       /* start time of its process, so that a reused pid is not mistaken for it */
    _Atomic uint64_t entered;       /* number of collectives it has begun */
    _Atomic uint32_t bell, sleepers; /* rung when data arrived, or there is room again */
    entry entries[KINDS];
} place;

typedef struct {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
} ring;

/* A sub-group that is being formed: its first rank announces to the others where its memory is. */
typedef struct {
    _Atomic uint32_t state; /* 0 free, 1 being written, 2 published */
    _Atomic uint32_t to_come;
    uint64_t id;
    uint32_t first;
    char root[64];
} rendezvous;

typedef struct {
    _Atomic uint32_t ranks;
    _Atomic uint32_t failed; /* 0 no, 1 being written, 2 published */
    char failure[FAILURE_LENGTH];
    place places[MAX_RANKS];
    ring rings[MAX_RANKS][MAX_RANKS]; /* [from][to] */
    rendezvous subgroups[MAX_SUBGROUPS];
} shared_state;

typedef struct {
    shared_state *shared;
    char *buffers;
    size_t bytes, ring_bytes;
    uint32_t ranks, rank;
    int references;
    int is_of_one_process; /* created by HcclCommInitAll: it cannot wait for the other ranks */
    int is_deterministic;
    double exec_timeout_s;
    int error;
    uint64_t next_sequence;
    uint64_t tickets;
    _Atomic uint64_t served; /* operations run in the order of submission, whatever their stream */
    uint32_t known_kinds;
    char name[NAME_LENGTH];
} communicator;

typedef struct {
    uint32_t peer;
    int receives;
    char *data;
    uint64_t bytes;
    agreement what;
    uint64_t moved;  /* of data and the preceding header */
    char header[sizeof(agreement) + sizeof(uint64_t)];
} transfer;

typedef struct operation {
    communicator *comm;
    struct operation *next; /* of a captured one: the copies for executions that have not reached it yet */
    uint64_t ticket;
    agreement what;
    const char *in;
    char *out;
    uint64_t out_bytes;
    const char *copy_from; /* this rank's own part, for which no ring is needed */
    char *copy_to;
    uint64_t copy_bytes;
    uint64_t offsets[MAX_RANKS], counts[MAX_RANKS]; /* of sums: the share that each rank computes, in elements */
    void *stream;
    int room, was_run, transfers;
    transfer list[];
} operation;

size_t hccl_size_of(int dtype);
const char *hccl_kind_name(int kind);
double hccl_seconds(const char *variable, double otherwise);
double hccl_now(void);
int hccl_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* communicator.c */
void hccl_retain(communicator *comm);
void hccl_release(communicator *comm);
int hccl_agree(communicator *comm, const agreement *what);
void hccl_describe_state(communicator *comm, uint32_t rank, char *into, size_t size);
int hccl_is_gone(communicator *comm, uint32_t rank);
int hccl_is_stopped(communicator *comm, uint32_t rank);

/* channel.c: move the whole list, or return an error code of CANN's runtime; the error of the first rank that fails is
 * that of all. */
int hccl_move(communicator *comm, transfer *list, int count);
void hccl_wake(place *of);
void hccl_sleep(place *mine, uint32_t seen);
int hccl_break(communicator *comm, const char *format, ...) __attribute__((format(printf, 2, 3)));
int hccl_broken(communicator *comm);

/* arithmetic.c: accumulate in the width of the dtype, rounding at each step. */
void hccl_fold(void *into, const void *from, uint64_t count, int dtype, int op);
int hccl_can_reduce(int dtype, int op);
void hccl_order(const communicator *comm, const agreement *what, uint32_t share, uint32_t *order);
float hccl_from_half(uint16_t half);
uint16_t hccl_to_half(float value);

/* faults.c */
int hccl_fault_root(int root, int kind);
uint32_t hccl_fault_share(const operation *given, uint32_t share);
void hccl_fault_before(operation *given, char **kept);
void hccl_fault_sum(const operation *given, const char *const *parts, const uint32_t *order, char *into, uint64_t count);
void hccl_fault_after(operation *given, char *kept);

#endif
