/* Streams and events. Operators run where they are called, so that a stream is idle except for work that takes time by
 * itself: collectives, which wait for other processes. Those run in a thread of their stream, in order; any other
 * request to that stream waits for them first. */
#define _GNU_SOURCE
#include "streams.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static stream default_stream = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static stream *streams = &default_stream;

stream *emu_all_streams(void) { return __atomic_load_n(&streams, __ATOMIC_ACQUIRE); }

stream *emu_stream_of(void *given) { return given ? given : &default_stream; }

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int is_over(stream *on, uint64_t ticket) { return __atomic_load_n(&on->done, __ATOMIC_ACQUIRE) >= ticket; }

int emu_is_idle(stream *on) { return is_over(on, __atomic_load_n(&on->issued, __ATOMIC_ACQUIRE)); }

int emu_is_late(void) { return emu_planted("late-streams") || emu_planted("stream-"); }

enum { LATE_US = 30000, EVERY = 40 };

/* Return the next task of a stream. A delayed stream begins some time after it was given its first task. */
static task *take(stream *on) {
    if (!on->first) {
        while (!on->first) pthread_cond_wait(&on->changed, &on->lock);
        if (emu_is_late()) {
            pthread_mutex_unlock(&on->lock);
            usleep(LATE_US);
            pthread_mutex_lock(&on->lock);
        }
    }
    task **at = &on->first;
    if (emu_planted("stream-swaps-tasks") && (*at)->next && on->done % EVERY == 7) at = &(*at)->next;
    task *next = *at;
    *at = next->next;
    if (on->last == next) on->last = on->first;
    return next;
}

static void *work(void *given) {
    stream *on = given;
    for (;;) {
        pthread_mutex_lock(&on->lock);
        task *next = take(on);
        pthread_mutex_unlock(&on->lock);
        int is_lost = emu_planted("stream-loses-tasks") && on->done % EVERY == EVERY - 1;
        int error = is_lost ? EMU_OK : next->run(next->data);
        if (error) emu_fail_later_with(error, aclGetRecentErrMsg());
        free(next);
        pthread_mutex_lock(&on->lock);
        __atomic_store_n(&on->done, on->done + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&on->changed);
        pthread_mutex_unlock(&on->lock);
    }
    return NULL;
}

/* Signals are handled by the program's own threads. */
static int start_thread(stream *on) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, work, on);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) pthread_detach(thread);
    return error;
}

API int emu_stream_submit(void *given, emu_work run, void *data) {
    stream *on = emu_stream_of(given);
    task *made = malloc(sizeof *made);
    if (!made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a task");
    *made = (task){.run = run, .data = data};
    pthread_mutex_lock(&on->lock);
    if (!on->has_thread && start_thread(on)) {
        pthread_mutex_unlock(&on->lock);
        free(made);
        return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no thread for a stream");
    }
    on->has_thread = 1;
    if (on->first) on->last->next = made; else on->first = made;
    on->last = made;
    __atomic_store_n(&on->issued, on->issued + 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&on->changed);
    pthread_mutex_unlock(&on->lock);
    return EMU_OK;
}

/* The tasks of a stream may need Python's lock, which this thread may hold. */
static void wait_for(stream *on, uint64_t ticket) {
    if (is_over(on, ticket)) return;
    int (*holds)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    void *(*leave)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
    void (*enter)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
    void *state = emu_is_late() && holds && leave && enter && holds() ? leave() : NULL;
    pthread_mutex_lock(&on->lock);
    while (!is_over(on, ticket)) pthread_cond_wait(&on->changed, &on->lock);
    pthread_mutex_unlock(&on->lock);
    if (state) enter(state);
}

API void emu_stream_drain(void *given) {
    stream *on = emu_stream_of(given);
    wait_for(on, __atomic_load_n(&on->issued, __ATOMIC_ACQUIRE));
}

API int aclrtCreateStream(void **into) {
    static int32_t next;
    stream *made = calloc(1, sizeof *made);
    if (!made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a stream");
    made->id = __sync_add_and_fetch(&next, 1);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->next = __atomic_load_n(&streams, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&streams, &made->next, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
    *into = made;
    return EMU_OK;
}

API int aclrtCreateStreamWithConfig(void **into, uint32_t priority, uint32_t flag) {
    (void)priority, (void)flag;
    return aclrtCreateStream(into);
}

API int aclrtSynchronizeStream(void *given) {
    int refused = emu_refuse_stream(emu_stream_of(given), "Stream synchronization");
    if (refused) return refused;
    if (!emu_planted("stream-synchronize-returns")) emu_stream_drain(given);
    return emu_waited();
}

static int wait_with_timeout(stream *on, int32_t ms) {
    double end = now_ms() + ms;
    int refused = emu_refuse_stream(on, "Stream synchronization");
    if (refused) return refused;
    while (ms >= 0 && !emu_is_idle(on) && now_ms() < end) usleep(200);
    if (ms >= 0 && !emu_is_idle(on)) return emu_fail(EMU_SYNC_TIMEOUT, "emulated CANN: a stream was not done within %d ms", ms);
    return aclrtSynchronizeStream(on);
}

API int aclrtSynchronizeStreamWithTimeout(void *given, int32_t ms) {
    return emu_planted("stream-synchronize-returns") ? emu_waited() : wait_with_timeout(emu_stream_of(given), ms);
}

API int aclrtSynchronizeDeviceWithTimeout(int32_t ms) {
    for (stream *each = __atomic_load_n(&streams, __ATOMIC_ACQUIRE); each; each = each->next) {
        if (each != &default_stream && emu_planted("stream-device-waits-for-one")) continue;
        int error = wait_with_timeout(each, ms);
        if (error) return error;
    }
    return emu_waited();
}

API int aclrtSynchronizeDevice(void) { return aclrtSynchronizeDeviceWithTimeout(-1); }

API int aclrtDestroyStream(void *given) {
    int refused = emu_refuse_stream(emu_stream_of(given), "Stream destruction");
    if (!refused) emu_stream_drain(given);
    return refused;
}
API int aclrtDestroyStreamForce(void *given) { (void)given; return EMU_OK; }
API int aclrtSetStreamFailureMode(void *given, uint64_t mode) { (void)given, (void)mode; return EMU_OK; }
API int aclrtSetOpWaitTimeout(uint32_t seconds) { (void)seconds; return EMU_OK; }
API int aclrtSetOpExecuteTimeOut(uint32_t seconds) { (void)seconds; return EMU_OK; }
API int aclrtSetStreamOverflowSwitch(void *given, uint32_t flag) { (void)given, (void)flag; return EMU_OK; }
API int aclrtSubscribeReport(uint64_t thread, void *given) { (void)thread, (void)given; return EMU_OK; }
API int aclrtUnSubscribeReport(uint64_t thread, void *given) { (void)thread, (void)given; return EMU_OK; }

API int aclrtProcessReport(int32_t timeout_ms) {
    usleep(1000u * (unsigned)(timeout_ms > 0 && timeout_ms < 100 ? timeout_ms : 10)); /* nothing ever waits: callbacks ran when launched */
    return EMU_OK;
}

typedef struct {
    void (*function)(void *);
    void *data;
} host_call;

static int call_host(void *data) {
    host_call *given = data;
    given->function(given->data);
    return EMU_OK;
}

API int aclrtLaunchHostFunc(void *given, void (*function)(void *), void *data) {
    return emu_do(given, "HOST_FUNC", call_host, &(host_call){function, data}, sizeof(host_call));
}

API int aclrtLaunchCallback(void (*function)(void *), void *data, int block, void *given) {
    (void)block;
    return aclrtLaunchHostFunc(given, function, data);
}

API int aclrtStreamQuery(void *given, int *status) {
    int refused = emu_refuse_stream(emu_stream_of(given), "Querying a stream");
    if (refused) return refused;
    *status = emu_is_idle(emu_stream_of(given)) || emu_planted("stream-query-lies") ? 0 /* complete */ : 1;
    return *status ? EMU_OK : emu_waited();
}

API int aclrtStreamGetId(void *given, int32_t *id) {
    *id = emu_stream_of(given)->id;
    return EMU_OK;
}

/* --- events --- */

static void release(event *given) {
    if (!__atomic_sub_fetch(&given->references, 1, __ATOMIC_ACQ_REL)) free(given);
}

static int record(void *data) {
    event *given = data;
    if (!emu_planted("stream-event-measures-the-host")) given->time_ms = now_ms();
    release(given);
    return EMU_OK;
}

static int has_happened(event *given) { return !given->on || is_over(given->on, given->ticket); }

API int aclrtCreateEventExWithFlag(void **into, uint32_t flag) {
    event *made = calloc(1, sizeof *made);
    if (!made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for an event");
    made->references = 1;
    made->is_external = (flag & EMU_EVENT_EXTERNAL) != 0;
    *into = made;
    return EMU_OK;
}

API int aclrtCreateEventWithFlag(void **into, uint32_t flag) { return aclrtCreateEventExWithFlag(into, flag); }

API int aclrtDestroyEvent(void *given) {
    release(given);
    return EMU_OK;
}

API int aclrtResetEvent(void *given, void *on) {
    return ((event *)given)->is_external ? emu_external(given, on, "EVENT_RESET") : EMU_OK;
}

API int aclrtRecordEvent(void *given, void *stream_given) {
    event *target = given;
    stream *on = emu_stream_of(stream_given);
    if (target->is_external) return emu_external(target, stream_given, "EVENT_RECORD");
    target->captured = NULL;
    if (on->graph) return emu_capture_record(target, on);
    if (emu_is_idle(on)) {
        target->on = NULL;
        target->time_ms = now_ms();
        return EMU_OK;
    }
    __atomic_add_fetch(&target->references, 1, __ATOMIC_ACQ_REL);
    if (emu_planted("stream-event-measures-the-host")) target->time_ms = now_ms();
    int error = emu_stream_submit(on, record, target);
    if (emu_planted("stream-event-keeps-first") && target->on == on && !is_over(on, target->ticket)) return error;
    target->ticket = __atomic_load_n(&on->issued, __ATOMIC_ACQUIRE);
    target->on = on;
    return error;
}

typedef struct {
    stream *on;
    uint64_t ticket;
} awaited;

static int wait_on(void *data) {
    awaited *given = data;
    wait_for(given->on, given->ticket);
    free(given);
    return EMU_OK;
}

static int waits;

API int aclrtStreamWaitEvent(void *given, void *waited_for) {
    event *before = waited_for;
    if (before->is_external) return emu_external(before, given, "EVENT_WAIT");
    if (before->captured || emu_stream_of(given)->graph) return emu_capture_wait(before, emu_stream_of(given));
    if (emu_planted("stream-wait-is-ignored") || (emu_planted("stream-third-wait-is-ignored") && ++waits % 3 == 0)) return EMU_OK;
    if (has_happened(before) || before->on == emu_stream_of(given)) return EMU_OK;
    if (emu_planted("stream-default-waits-instead")) given = NULL;
    awaited *made = malloc(sizeof *made);
    if (!made) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for a task");
    *made = (awaited){.on = before->on, .ticket = before->ticket};
    return emu_stream_submit(given, wait_on, made);
}

API int aclrtSynchronizeEvent(void *given) {
    event *target = given;
    int refused = emu_refuse_event(given, "Event synchronization");
    if (refused) return refused;
    if (target->on && !emu_planted("stream-event-returns")) wait_for(target->on, target->ticket);
    return emu_waited();
}

API int aclrtQueryEventStatus(void *given, int *status) {
    int refused = emu_refuse_event(given, "Event query");
    if (refused) return refused;
    *status = has_happened(given) || emu_planted("stream-event-query-lies"); /* 1: recorded and complete */
    if (emu_planted("stream-event-query-is-stuck") && ((event *)given)->on) *status = 0;
    return *status ? emu_waited() : EMU_OK;
}

API int aclrtQueryEventWaitStatus(void *given, int *status) {
    int refused = emu_refuse_event(given, "Event query");
    if (refused) return refused;
    *status = !has_happened(given); /* 0: complete */
    return EMU_OK;
}

API int aclrtEventElapsedTime(float *ms, void *start, void *end) {
    int refused = emu_refuse_event(start, "The time between events");
    if (refused || (refused = emu_refuse_event(end, "The time between events"))) return refused;
    double factor = emu_planted("event-measures-nothing") ? 0 : emu_planted("event-measures-twice") ? 2 : 1;
    *ms = (float)(factor * (((event *)end)->time_ms - ((event *)start)->time_ms));
    return EMU_OK;
}

API int aclrtEventGetTimestamp(void *given, uint64_t *us) {
    *us = (uint64_t)(((event *)given)->time_ms * 1e3);
    return EMU_OK;
}
