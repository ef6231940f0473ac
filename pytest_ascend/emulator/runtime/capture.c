/* Captured graphs. While a stream is captured, work submitted to it becomes a task of the graph, which Python keeps
 * (see graphs.py): an operator with its tensors, or a function of ours with a copy of its data. Executing the graph
 * runs the tasks in the order of submission, which is consistent with the order of every stream.
 *
 * A graph that waits, for an external event or for the other ranks of a collective, is executed by the thread of its
 * stream. Until it ends, other work for the stream is queued behind it: the program may continue and record the event
 * later, as on a device. */
#define _GNU_SOURCE /* gettid */
#include "streams.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GLOBAL, THREAD_LOCAL, RELAXED, NONE };

static int64_t ids;
static int captures[NONE];              /* number of captures in the process, by mode */
static __thread int own[NONE];          /* captures begun by this thread */
static __thread int exchanged = GLOBAL; /* the mode of this thread, which it may change */
static int pending;                     /* executions that wait in the thread of a stream */

static int64_t new_id(void) { return __atomic_add_fetch(&ids, 1, __ATOMIC_ACQ_REL); }

/* Return the strictest mode among several captures. */
static int strictest(const int *counts) {
    int mode = GLOBAL;
    while (mode < NONE && !counts[mode]) mode++;
    return mode;
}

static int forbidden(int code, const char *what, const char *why) {
    return emu_fail(code, "EE1016: %s failed. Reason: %s.", what, why);
}

int emu_refuse_synchronous(const char *what) {
    int all = strictest(captures), mine = strictest(own);
    if (all == NONE || exchanged == RELAXED) return EMU_OK;
    int refused = exchanged == GLOBAL ? all == GLOBAL || mine == THREAD_LOCAL : mine <= THREAD_LOCAL;
    return refused ? forbidden(EMU_CAPTURE_FORBIDS, what,
                               mine == NONE ? "Other threads of the current context are in the capture state. To perform this operation, call "
                                              "aclmdlRICaptureThreadExchangeMode to change the capture mode of the current thread"
                                            : "The current thread is in the capture state and the current operation cannot be performed. "
                                              "This operation is supported only in the RELAXED mode")
                   : EMU_OK;
}

int emu_refuse_stream(stream *on, const char *what) {
    return on->graph ? forbidden(EMU_STREAM_CAPTURED, what, "The stream is in the capture state") : EMU_OK;
}

int emu_refuse_event(event *given, const char *what) {
    return given->captured && given->captured->origin ? forbidden(EMU_EVENT_CAPTURED, what, "The event is in the capture state") : EMU_OK;
}

/* --- where work goes --- */

int64_t emu_enter(void *given) {
    stream *on = emu_stream_of(given);
    if (on->graph) {
        on->captured++;
        on->is_joined = 0;
        return on->graph->id;
    }
    if (on->updated) return on->update;
    if (emu_is_late()) return new_id();
    if (emu_is_idle(on)) return 0;
    if (__atomic_load_n(&pending, __ATOMIC_ACQUIRE)) return new_id();
    emu_stream_drain(given);
    return 0;
}

static int execute(void *data) {
    int64_t id = *(int64_t *)data;
    int error = emu_python(EMU_REPLAY, &id, 0, NULL);
    free(data);
    return error;
}

static int execute_once(void *data) {
    int64_t id = *(int64_t *)data;
    int error = execute(data);
    emu_python(EMU_FORGET, &id, 0, NULL);
    return error;
}

static void tell_collectives(graph *of, int when) {
    for (collective *each = of->collectives; each; each = each->next) each->tell(each->data, when);
}

/* The struct itself stays: events may refer to it. */
static int forget(graph *what) {
    if (__atomic_sub_fetch(&what->references, 1, __ATOMIC_ACQ_REL)) return EMU_OK;
    int error = emu_python(EMU_FORGET, &what->id, 0, NULL);
    tell_collectives(what, EMU_DESTROYED);
    for (collective *each = what->collectives, *next; each; each = next) {
        next = each->next;
        free(each);
    }
    what->collectives = NULL;
    return error;
}

static int execute_pending(void *data) {
    graph *what = *(graph **)data;
    free(data);
    int error = emu_python(EMU_REPLAY, &what->id, 0, NULL);
    tell_collectives(what, EMU_OVER);
    forget(what);
    __atomic_sub_fetch(&pending, 1, __ATOMIC_ACQ_REL);
    return error;
}

static int submit(void *stream, int64_t what, emu_work run) {
    int64_t *data = malloc(sizeof *data);
    if (!data) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a task");
    *data = what;
    return emu_stream_submit(stream, run, data);
}

int emu_added(void *given, int64_t into, int error) {
    stream *on = emu_stream_of(given);
    return error || !into || on->graph || on->updated ? error : submit(given, into, execute_once);
}

int emu_waits_for_sizes(void *given) { return emu_is_late() && !emu_stream_of(given)->graph && !emu_stream_of(given)->updated; }

API int emu_do(void *given, const char *name, emu_work run, const void *data, size_t size) {
    int64_t into = emu_enter(given);
    if (!into) return emu_timed(name, run, (void *)data, given);
    void *kept = malloc(size + 1);
    if (!kept) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a task");
    memcpy(kept, data, size);
    int64_t words[] = {(intptr_t)name, (intptr_t)run, (intptr_t)kept};
    return emu_added(given, into, emu_python(EMU_TASK, words, into, given));
}

/* Python no longer needs a task's data. */
API void emu_release(void *data) { free(data); }

API int emu_is_captured(void *given) { return emu_stream_of(given)->graph != NULL; }

API int emu_capture_collective(void *given, const char *name, emu_work run, emu_tell tell, void *data) {
    graph *in = emu_stream_of(given)->graph;
    collective *made = malloc(sizeof *made);
    if (!made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a task");
    *made = (collective){tell, data, NULL};
    *in->last_collective = made;
    in->last_collective = &made->next;
    in->waits = 1;
    return emu_do(given, name, run, &data, sizeof data);
}

/* --- capturing --- */

API int aclmdlRICaptureGetInfo(void *given, int *status, void **made) {
    graph *found = emu_stream_of(given)->graph;
    if (status) *status = found != NULL;
    if (made) *made = found;
    return EMU_OK;
}

API int aclmdlRICaptureThreadExchangeMode(int *mode) {
    if (*mode < GLOBAL || *mode > RELAXED) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: there is no capture mode %d", *mode);
    int before = exchanged;
    exchanged = *mode;
    *mode = before;
    return EMU_OK;
}

static graph *new_graph(void) {
    graph *made = calloc(1, sizeof *made);
    if (made) made->id = new_id(), made->references = 1, made->last_collective = &made->collectives;
    return made;
}

/* The first 910 and the 310B lack it: in src/runtime/config of CANN's runtime (681ef7610, August 2026), only the
 * features of the other chips include RT_FEATURE_MODEL_ACL_GRAPH. */
static int cannot_capture(const char *chip) { return !strncmp(chip, "Ascend310B", 10) || emu_is_first_910(chip); }

API int aclmdlRICaptureToModelRIBegin(void *given, void *into, int mode) {
    stream *on = emu_stream_of(given);
    graph *made = into;
    if (cannot_capture(aclrtGetSocName())) return emu_fail(EMU_NOT_SUPPORTED, "emulated CANN: an %s cannot capture", aclrtGetSocName());
    if (!made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a graph");
    if (mode < GLOBAL || mode > RELAXED) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: there is no capture mode %d", mode);
    if (!given) return forbidden(EMU_CAPTURE_IMPLICIT, "Stream begin capture", "The default stream cannot be captured");
    if (on->graph) return forbidden(EMU_STREAM_CAPTURED, "Stream begin capture", "The stream is in the capture state");
    made->mode = mode, made->thread = gettid(), made->origin = on;
    on->graph = made;
    on->is_joined = 1;
    __atomic_add_fetch(&captures[mode], 1, __ATOMIC_ACQ_REL);
    own[mode]++;
    return EMU_OK;
}

API int aclmdlRICaptureBegin(void *given, int mode) {
    graph *made = new_graph();
    int error = aclmdlRICaptureToModelRIBegin(given, made, mode);
    if (error) free(made);
    return error;
}

API int aclmdlRICaptureEnd(void *given, void **into) {
    graph *made = emu_stream_of(given)->graph;
    *into = NULL;
    if (!made) return forbidden(EMU_NOT_CAPTURED, "Stream end capture", "The stream is not in the capture state");
    if (made->origin != emu_stream_of(given))
        return forbidden(EMU_CAPTURE_UNMATCHED, "Stream end capture", "The capture was not initiated in this stream");
    if (made->mode != RELAXED && made->thread != gettid())
        return forbidden(EMU_WRONG_THREAD, "Stream end capture", "The capture was begun by another thread");
    int unjoined = 0;
    for (stream *each = emu_all_streams(); each; each = each->next)
        if (each->graph == made) {
            unjoined |= each != made->origin && !each->is_joined;
            each->graph = NULL;
        }
    __atomic_sub_fetch(&captures[made->mode], 1, __ATOMIC_ACQ_REL);
    if (own[made->mode]) own[made->mode]--;
    made->origin = NULL;
    if (unjoined || made->group) {
        forget(made);
        return unjoined ? emu_fail(EMU_UNJOINED, "EE1017: Capture model validity check failed. Parameter capture model is invalid. "
                                                 "Reason: A stream of the capture was not joined to the one that it began on.")
                        : forbidden(EMU_TASK_GROUP, "Stream end capture", "A task group was not ended");
    }
    *into = made;
    return EMU_OK;
}

API int aclmdlRIDestroy(void *given) { return forget(given); }

extern int aclrtMalloc(void **into, size_t size, int policy);

API int aclmdlRIExecuteAsync(void *given, void *stream) {
    graph *what = given;
    if (what->origin) return forbidden(EMU_MODEL_CAPTURED, "Executing a graph", "The model is in the capture state");
    int error = emu_refuse_stream(emu_stream_of(stream), "Executing a graph");
    if (error) return error;
    void *volatile lost = NULL; /* volatile, or the compiler leaves the call out */
    if (emu_planted("replay-keeps-host-memory")) memset(lost = malloc(1 << 16), 1, 1 << 16);
    if (emu_planted("replay-keeps-device-memory") && (error = aclrtMalloc((void **)&lost, 1 << 16, 0))) return error;
    if (what->waits || (__atomic_load_n(&pending, __ATOMIC_ACQUIRE) && !emu_is_idle(emu_stream_of(stream)))) {
        __atomic_add_fetch(&pending, 1, __ATOMIC_ACQ_REL);
        __atomic_add_fetch(&what->references, 1, __ATOMIC_ACQ_REL);
        tell_collectives(what, EMU_GIVEN);
        return submit(stream, (intptr_t)what, execute_pending);
    }
    emu_stream_drain(stream);
    return emu_python(EMU_REPLAY, &what->id, 0, stream);
}

API int aclmdlRIGetId(void *given, uint32_t *id) {
    *id = (uint32_t)((graph *)given)->id;
    return EMU_OK;
}

API int aclmdlRIDebugJsonPrint(void *given, const char *path, uint32_t flags) {
    int64_t words[] = {((graph *)given)->id, (intptr_t)path, flags};
    return emu_python(EMU_PRINT, words, 0, NULL);
}

API int aclmdlRIDebugPrint(void *given) { return aclmdlRIDebugJsonPrint(given, NULL, 0); }

/* --- events --- */

static int nothing(void *data) { (void)data; return EMU_OK; }

int emu_capture_record(event *given, stream *on) {
    int error = emu_do(on, "EVENT_RECORD", nothing, NULL, 0);
    given->captured = on->graph, given->from = on, given->after = on->captured, given->on = NULL;
    return error;
}

/* A stream that waits for a captured event belongs to the capture from then on. */
int emu_capture_wait(event *given, stream *on) {
    graph *of = given->captured;
    if (of && of->origin && !on->graph) {
        on->graph = of;
        on->captured = 0;
    }
    if (!on->graph) return EMU_OK; /* the capture of the event has ended */
    if (of && of->origin && of != on->graph)
        return forbidden(EMU_CAPTURE_CONFLICT, "Triggering event waiting", "The event belongs to another capture");
    int error = emu_do(on, "EVENT_WAIT", nothing, NULL, 0);
    if (of && given->from != on && given->from->captured == given->after) given->from->is_joined = 1;
    return error;
}

/* External events order a graph relative to work outside of it during execution: events with that flag or, in newer
 * releases of torch_npu, words of device memory that one stream writes and another one waits for. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

typedef struct {
    volatile uint64_t *at;
    uint64_t value;
    uint32_t how; /* the condition: at least, equal, any bit, no bit */
} value_task;

static int write_value(void *data) {
    value_task *given = data;
    pthread_mutex_lock(&lock);
    *given->at = given->value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

static int has_come(const value_task *given) {
    uint64_t now = *given->at, bits = now & given->value;
    return given->how == 0 ? now >= given->value : given->how == 1 ? now == given->value : given->how == 2 ? bits != 0 : (now | given->value) != UINT64_MAX;
}

static int wait_for_value(void *data) {
    pthread_mutex_lock(&lock);
    while (!has_come(data)) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

static int wait_pending(void *data) {
    wait_for_value(data);
    free(data);
    __atomic_sub_fetch(&pending, 1, __ATOMIC_ACQ_REL);
    return EMU_OK;
}

/* Outside of a capture, a stream that has to wait does so in its thread, and later work is queued behind it. */
static int wait_in_order(void *stream, const char *name, const value_task *given) {
    graph *captured = emu_stream_of(stream)->graph;
    if (captured) captured->waits = 1;
    else if (!emu_stream_of(stream)->updated && !has_come(given)) {
        value_task *kept = malloc(sizeof *kept);
        if (!kept) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a task");
        *kept = *given;
        __atomic_add_fetch(&pending, 1, __ATOMIC_ACQ_REL);
        return emu_stream_submit(stream, wait_pending, kept);
    }
    return emu_do(stream, name, wait_for_value, given, sizeof *given);
}

API int aclrtValueWrite(void *at, uint64_t value, uint32_t flag, void *stream) {
    (void)flag;
    return emu_do(stream, "VALUE_WRITE", write_value, &(value_task){at, value, 0}, sizeof(value_task));
}

API int aclrtValueWait(void *at, uint64_t value, uint32_t flag, void *stream) {
    return wait_in_order(stream, "VALUE_WAIT", &(value_task){at, value, flag});
}

int emu_external(event *given, void *stream, const char *what) {
    __atomic_add_fetch(&given->references, 1, __ATOMIC_ACQ_REL); /* never released: a task may refer to it */
    value_task task = {&given->is_set, strcmp(what, "EVENT_RESET") != 0, 0};
    if (!strcmp(what, "EVENT_WAIT")) return wait_in_order(stream, what, &task);
    return emu_do(stream, what, write_value, &task, sizeof task);
}

/* --- task groups: tasks of a graph that others can replace later --- */

API int aclmdlRICaptureTaskGrpBegin(void *given) {
    graph *in = emu_stream_of(given)->graph;
    if (!in) return forbidden(EMU_NOT_CAPTURED, "Marking the start of a task group", "The stream is not in the capture state");
    if (in->group) return forbidden(EMU_TASK_GROUP, "Marking the start of a task group", "The task group before it was not ended");
    in->group = new_id();
    return emu_python(EMU_GROUP, &in->group, in->id, given);
}

API int aclmdlRICaptureTaskGrpEnd(void *given, void **into) {
    graph *in = emu_stream_of(given)->graph;
    int64_t none = 0;
    group *made = malloc(sizeof *made);
    if (!in || !in->group || !made) {
        free(made);
        return forbidden(in ? EMU_TASK_GROUP : EMU_NOT_CAPTURED, "Marking the end of a task group", "No task group was begun");
    }
    *made = (group){in, in->group};
    *into = made;
    in->group = 0;
    return emu_python(EMU_GROUP, &none, in->id, given);
}

API int aclmdlRICaptureTaskUpdateBegin(void *given, void *handle) {
    stream *on = emu_stream_of(given);
    if (on->graph) return emu_refuse_stream(on, "Updating a task group");
    if (on->updated) return forbidden(EMU_TASK_GROUP, "Updating a task group", "The update before it was not ended");
    if (!handle) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: a task group must not be null");
    on->update = new_id();
    on->updated = handle;
    return EMU_OK;
}

API int aclmdlRICaptureTaskUpdateEnd(void *given) {
    stream *on = emu_stream_of(given);
    if (!on->updated) return forbidden(EMU_TASK_GROUP, "Marking the end of the task to be updated", "No update was begun");
    int64_t words[] = {on->updated->in->id, on->updated->id};
    on->updated = NULL;
    return emu_python(EMU_UPDATE, words, on->update, given);
}

/* --- conditional tasks: branches are graphs of their own, inside another one --- */

typedef struct {
    uint64_t *value;
    uint64_t first; /* assigned before each execution, if requested */
    int is_assigned;
} condition;

typedef struct {
    condition *handle;
    int type; /* 0 if, 1 while, 2 switch */
    uint32_t size;
    graph **graphs;
} conditional;

API int aclmdlRICondHandleCreate(void *in, uint32_t first, int flag, void **into) {
    condition *made = calloc(1, sizeof *made);
    void *value = NULL;
    (void)in;
    if (!made || aclrtMalloc(&value, sizeof(uint64_t), 0)) {
        free(made);
        return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no memory for a condition");
    }
    *made = (condition){value, first, flag == 1};
    *made->value = first;
    *into = made;
    return EMU_OK;
}

API int aclmdlRICondHandleGetCondPtr(void *given, uint64_t **into) {
    *into = ((condition *)given)->value;
    return EMU_OK;
}

static int choose(void *data) {
    conditional *given = data;
    int error = EMU_OK;
    uint64_t *value = given->handle->value;
    if (given->type == 1)
        while (!error && *value) error = emu_python(EMU_REPLAY, &given->graphs[0]->id, 0, NULL);
    else if (given->type == 2 ? *value < given->size : *value != 0)
        error = emu_python(EMU_REPLAY, &given->graphs[given->type == 2 ? *value : 0]->id, 0, NULL);
    return error;
}

API int aclmdlRIAddCondTask(conditional given, void *stream, uint32_t flags) {
    (void)flags;
    graph *in = emu_stream_of(stream)->graph, **branches = calloc(given.size ? given.size : 1, sizeof *branches);
    if (!in) return forbidden(EMU_NOT_CAPTURED, "Adding a conditional task", "The stream is not in the capture state");
    if (!given.handle || !given.size || !branches) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: a conditional task needs a condition and a branch");
    for (uint32_t i = 0; i < given.size; i++) {
        if (!(branches[i] = new_graph())) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a graph");
        given.graphs[i] = branches[i];
    }
    given.graphs = branches;
    return emu_do(stream, "CONDITION", choose, &given, sizeof given);
}

/* --- scopes of super kernels, and limits on cores: accepted, without effect on results --- */

API int aclskScopeBegin(const char *name, void *stream) { (void)name, (void)stream; return EMU_OK; }
API int aclskScopeEnd(const char *name, void *stream) { (void)name, (void)stream; return EMU_OK; }
API int aclskOptimize(void *given, const void *options) { (void)given, (void)options; return EMU_OK; }

enum { CORE_KINDS = 2 };
static const uint32_t cores[CORE_KINDS] = {24, 48}; /* cube and vector cores of an Ascend910B1 */

API int aclrtGetStreamResLimit(void *stream, int kind, uint32_t *value) {
    (void)stream;
    if (kind < 0 || kind >= CORE_KINDS) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: there is no resource %d", kind);
    *value = cores[kind];
    return EMU_OK;
}

API int aclrtSetStreamResLimit(void *stream, int kind, uint32_t value) { (void)stream, (void)kind, (void)value; return EMU_OK; }
API int aclrtResetStreamResLimit(void *stream) { (void)stream; return EMU_OK; }
API int aclrtUseStreamResInCurrentThread(void *stream) { (void)stream; return EMU_OK; }
API int aclrtUnuseStreamResInCurrentThread(void *stream) { (void)stream; return EMU_OK; }
API int aclrtGetResInCurrentThread(int kind, uint32_t *value) { return aclrtGetStreamResLimit(NULL, kind, value); }
API int aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t *value) { (void)device; return aclrtGetStreamResLimit(NULL, kind, value); }
API int aclrtSetDeviceResLimit(int32_t device, int kind, uint32_t value) { (void)device, (void)kind, (void)value; return EMU_OK; }
API int aclrtResetDeviceResLimit(int32_t device) { (void)device; return EMU_OK; }
API int aclrtSetStreamAttribute(void *stream, int what, const void *value) { (void)stream, (void)what, (void)value; return EMU_OK; }
