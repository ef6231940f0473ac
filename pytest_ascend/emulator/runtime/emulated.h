/* Declarations shared by the parts of the emulated CANN. Everything here is internal, except for the emu_ functions
 * that Python calls and those that the entry points in libopapi.so use. */
#ifndef PYTEST_ASCEND_EMULATED_H
#define PYTEST_ASCEND_EMULATED_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

/* Error codes as documented for CANN's runtime. */
enum {
    EMU_OK = 0,
    EMU_INVALID_PARAMETER = 107000,
    EMU_INVALID_DEVICE = 107001,
    EMU_NO_CONTEXT = 107002,
    EMU_UNJOINED = 107025,
    EMU_MODEL_CAPTURED = 107026,
    EMU_STREAM_CAPTURED = 107027,
    EMU_EVENT_CAPTURED = 107028,
    EMU_NOT_CAPTURED = 107029,
    EMU_CAPTURE_FORBIDS = 107030,
    EMU_CAPTURE_IMPLICIT = 107031,
    EMU_CAPTURE_CONFLICT = 107032,
    EMU_TASK_GROUP = 107033,
    EMU_CAPTURE_UNMATCHED = 107036,
    EMU_WRONG_THREAD = 107038,
    EMU_CAPTURE_BLOCKS = 107041,
    EMU_NOT_SUPPORTED = 207000,
    EMU_OUT_OF_MEMORY = 207001,
    EMU_DRIVER = 507899,
    EMU_LOST_HEARTBEAT = 507010,
    EMU_AICORE_EXCEPTION = 507015,
    EMU_SYNC_TIMEOUT = 507046,
    EMU_COLLECTIVE_TIMEOUT = 507048, /* the error of a stream whose collective timed out */
    EMU_KERNEL_FAILED = 561000,
};

/* Set this thread's message for aclGetRecentErrMsg; returns the code, so that "return emu_fail(...)" reads well. */
API int emu_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

API const char *aclGetRecentErrMsg(void);

/* Write a line into this process's file of CANN's log, if ASCEND_PROCESS_LOG_PATH names a folder for it. */
API void emu_plog(const char *module, const char *text);

/* A function of CANN that is not emulated was called: record its name, report it, fail. */
API int emu_missing(const char *kind, const char *name);

/* Move the names recorded since the last call into buffer, one a line; returns the total number of bytes. */
API size_t emu_take_missing(char *buffer, size_t size);

/* The single address range of all devices' memory. Device d owns [base + d * size, base + (d + 1) * size). */
API char *emu_memory_base(void);
API size_t emu_memory_size(void);
API int emu_device_count(void);  /* that this process sees */
API int emu_total_devices(void);

/* Which cards exist and who may use them: see cards.c. emu_take_card is called when a device is set. */
API int emu_logical(int user);
API int emu_after_fork(void);
API int emu_take_card(int user);

/* The effects of planted faults: see faults.c. emu_waited returns the error that a synchronization finds, if any. */
API int emu_allocations_fail(void);
API int emu_waited(void);
API void emu_fail_later_with(int code, const char *message);
int emu_planted(const char *name);

/* Have a thread of the stream do work that takes time of its own, after all earlier work. Work returns an error code,
 * which the next synchronization of the device reports. */
typedef int (*emu_work)(void *data);
API int emu_stream_submit(void *stream, emu_work run, void *data);

/* Wait until the stream is idle, as every operator and copy does first. */
API void emu_stream_drain(void *stream);

/* Execute work on a copy of data, in stream order: at once, or when the stream has finished waiting. While the stream
 * is captured, the work becomes a task of the graph instead. name is CANN's for tasks of this kind. */
API int emu_do(void *stream, const char *name, emu_work run, const void *data, size_t size);

/* A collective of a captured stream becomes a task of the graph, which owns data from then on. At each execution, tell
 * reports that the graph was given to a stream, which reserves the collective's turn in the order in which the program
 * issued it, that the collective is over, and that it is destroyed. */
enum { EMU_GIVEN, EMU_OVER, EMU_DESTROYED };
typedef void (*emu_tell)(void *data, int when);
API int emu_is_captured(void *stream);
API int emu_capture_collective(void *stream, const char *name, emu_work run, emu_tell tell, void *data);

/* Execute work at once, and report it to profilers: see profiling.c. */
API int emu_timed(const char *name, emu_work run, void *data, void *stream);

/* Where work for a stream goes. 0: the stream was waited for, and the work is to be done at once. Otherwise the list of
 * tasks that Python adds it to; emu_added then confirms it. */
int64_t emu_enter(void *stream);
int emu_added(void *stream, int64_t into, int error);

/* Whether to wait for an operator whose sizes depend on data, which is so outside of a capture. */
int emu_waits_for_sizes(void *stream);

/* Fails inside a capture whose mode does not allow synchronous copies. */
int emu_refuse_synchronous(const char *what);

/* Whether the emulated release of CANN is older than this one. */
int emu_cann_is_before(int major, int minor);
API const char *aclrtGetSocName(void);
int emu_is_first_910(const char *chip);

/* Request something from Python: an operator's index or one of these, its words, the list of tasks, the stream's id. */
enum { EMU_TASK = -2, EMU_REPLAY = -3, EMU_FORGET = -4, EMU_GROUP = -5, EMU_UPDATE = -6, EMU_PRINT = -7 };
int emu_python(int64_t what, const int64_t *words, int64_t into, void *stream);

/* Descriptors as Python reads them: every field is a 64-bit word, in this order. */
typedef struct {
    int64_t dtype;
    int64_t ndim;
    int64_t offset; /* in elements, from data */
    int64_t data;   /* address of the storage, not of the first element */
    int64_t format;
    int64_t shape_and_strides[]; /* ndim sizes, then ndim strides in elements */
} aclTensor;

enum { EMU_TENSOR_WORDS = 13 };

enum { EMU_BY_NAME = -1 }; /* replaces an operator's index: the first word is its name */

typedef struct {
    int64_t dtype;
    unsigned char value[16];
} aclScalar;

/* Arrays of int64, bool (one byte each), float, and lists of descriptors (pointers). */
typedef struct {
    int64_t count;
    void *items;
} aclArray;

/* One operator call between its two phases. */
typedef struct {
    int64_t operator_index;
    int64_t count;
    char *texts; /* copies of the strings among the arguments, owned */
    int64_t words[];
} emu_executor;

API emu_executor *emu_executor_new(int64_t operator_index, int64_t count);
API int64_t emu_keep_text(emu_executor *executor, const char *text);
API int64_t emu_double_bits(double value);
API int emu_run(emu_executor *executor, void *stream);

/* Run an operator of the older kind: type, inputs, outputs and attributes as counts and addresses. */
API int emu_run_by_name(const int64_t *words, void *stream);

API aclTensor *aclCreateTensor(const int64_t *shape, uint64_t ndim, int dtype, const int64_t *strides, int64_t offset, int format,
                               const int64_t *storage_shape, uint64_t storage_ndim, void *data);

#endif
