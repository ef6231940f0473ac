/* Streams, events and captured graphs, shared by streams.c and capture.c. */
#ifndef PYTEST_ASCEND_STREAMS_H
#define PYTEST_ASCEND_STREAMS_H

#include "emulated.h"

#include <pthread.h>

typedef struct task {
    emu_work run;
    void *data;
    struct task *next;
} task;

/* A collective of a graph, in the order of the capture. */
typedef struct collective {
    emu_tell tell;
    void *data;
    struct collective *next;
} collective;

/* A captured graph. Python keeps its tasks, by id. */
typedef struct graph {
    int64_t id;
    int mode;
    int64_t thread;
    struct stream *origin; /* NULL once the capture has ended */
    int waits;             /* whether it waits for an external event, or for other ranks */
    int64_t group;         /* the open task group, or 0 */
    int references;        /* by the program, and by executions that wait in the thread of a stream */
    collective *collectives, **last_collective;
} graph;

typedef struct group {
    graph *in;
    int64_t id;
} group;

typedef struct stream {
    int32_t id;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *first, *last;
    uint64_t issued, done; /* number of tasks ever issued, and number of those that are done */
    struct stream *next;   /* of all streams, including the default one: none is ever freed, as events refer to them */
    graph *graph;          /* the graph that is being captured from it */
    int64_t captured;      /* number of tasks captured from it */
    int is_joined;         /* whether another stream of the capture waits for all of them */
    group *updated;        /* the task group that is being updated on it */
    int64_t update;        /* where its new tasks are collected */
} stream;

enum { EMU_EVENT_EXTERNAL = 0x20 };

typedef struct {
    double time_ms;
    stream *on;      /* NULL if the event has completed, or was never recorded */
    uint64_t ticket; /* the task with which it completes */
    int references;  /* by the owner, and by tasks that will record it */
    graph *captured; /* the graph that it was last recorded in */
    stream *from;    /* then: the stream, and the number of tasks captured from it */
    int64_t after;
    int is_external;
    volatile uint64_t is_set; /* of an external event */
} event;

stream *emu_stream_of(void *given);
stream *emu_all_streams(void);
int emu_is_idle(stream *on);

/* Whether streams work later than requested: with late-streams, which is not a fault, and all faults of streams. */
int emu_is_late(void);

/* Return the error code, with CANN's reason, of a call that a capture does not allow, or 0. */
int emu_refuse_stream(stream *on, const char *what);
int emu_refuse_event(event *given, const char *what);

int emu_capture_record(event *given, stream *on);
int emu_capture_wait(event *given, stream *on);
int emu_external(event *given, void *stream, const char *what);

#endif
