/* Building blocks of planted faults: a device that crashes, hangs, fails late or loses its memory. */
#include "emulated.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int allocations_fail;
static int pending_error;
static char pending_message[1024];

/* If on, no further memory can be allocated on any device of this process. */
API void emu_fail_allocations(int on) { __atomic_store_n(&allocations_fail, on, __ATOMIC_RELEASE); }
API int emu_allocations_fail(void) { return __atomic_load_n(&allocations_fail, __ATOMIC_ACQUIRE); }

/* An error reported at the next synchronization of the device and at each later one: a failed device does not recover
 * within a process. */
API void emu_fail_later(int code) { __atomic_store_n(&pending_error, code, __ATOMIC_RELEASE); }

/* Likewise, with its own message. Of several errors the first is reported: the others follow from it. */
API void emu_fail_later_with(int code, const char *message) {
    static int is_taken;
    if (__atomic_exchange_n(&is_taken, 1, __ATOMIC_ACQ_REL)) return;
    snprintf(pending_message, sizeof pending_message, "%s", message);
    emu_fail_later(code);
}

/* Whether this fault of the runtime is planted: docs/emulator.md lists them. A name that ends with "-" matches all
 * names with this prefix. */
int emu_planted(const char *name) {
    const char *given = getenv("PYTEST_ASCEND_FAULTS");
    size_t length = strlen(name);
    for (const char *at = given; at && (at = strstr(at, name)); at += length)
        if ((at == given || at[-1] == ',') && (name[length - 1] == '-' || !at[length] || at[length] == ',')) return 1;
    return 0;
}

API int emu_waited(void) {
    if (emu_after_fork()) return EMU_NO_CONTEXT;
    int code = __atomic_load_n(&pending_error, __ATOMIC_ACQUIRE);
    if (!code) return EMU_OK;
    if (pending_message[0]) return emu_fail(code, "%s", pending_message);
    const char *what = code == EMU_LOST_HEARTBEAT ? "the device is lost, its heartbeat stopped" : "an operator failed on the device";
    return emu_fail(code, "emulated CANN: %s (%d); the error was found while waiting", what, code);
}

/* Never returns. A caller that holds Python's lock keeps it. */
API void emu_hang(void) {
    emu_plog("RUNTIME", "the process waits for an event that does not come");
    for (;;) pause();
}

API void emu_die(int by_signal) {
    emu_plog("RUNTIME", "an operator takes the process down");
    if (by_signal == SIGSEGV) *(volatile int *)8 = 1;
    if (by_signal == SIGABRT) abort();
    kill(getpid(), by_signal);
    emu_hang();
}
