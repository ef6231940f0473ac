/* Which cards a process sees and by which numbers, who may still use them after a fork, and what starts with the
 * runtime: a watching thread, and signal handlers. The real runtime does the same. */
#include "emulated.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16 };

static pthread_once_t booted = PTHREAD_ONCE_INIT;
static int seen[MOST], seen_count; /* logical ids in the order of user ids; the variable is read once */
static int in_use, lost_by_fork;   /* a context was created here; this process was forked after that */

static int devices(void) {
    const char *text = getenv("PYTEST_ASCEND_EMULATED_DEVICES");
    int count = text ? atoi(text) : 2;
    return count < 1 ? 1 : count > MOST ? MOST : count;
}

/* Of the driver (libascend_hal.so), which does not read ASCEND_RT_VISIBLE_DEVICES. */
API int drvGetDevNum(unsigned *count) {
    *count = (unsigned)devices();
    return 0;
}

/* As GetVisibleDevices of CANN's runtime reads them (hicann/runtime 681ef7610): an invalid device ends the list; a list
 * that does not ascend, or repeats a device, shows none. */
static void read_visible(const char *text) {
    char *end;
    for (seen_count = 0; seen_count < devices() && *text >= '0' && *text <= '9'; text = end + 1) {
        long id = strtol(text, &end, 10);
        if (id >= devices()) return;
        if (seen_count && id <= seen[seen_count - 1]) {
            seen_count = 0;
            return;
        }
        seen[seen_count++] = (int)id;
        if (*end != ',') return;
    }
}

static void forked(void) { lost_by_fork = lost_by_fork || in_use; }

static void *watch(void *nothing) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (;;) sleep(3600);
    return nothing;
}

/* Like libascend_trace: write a note, then restore the previous action of the signal. */
static struct sigaction before[NSIG];
static void note(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    sigaction(number, &before[number], NULL);
    raise(number);
}

static void boot(void) {
    const char *visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (visible) read_visible(visible);
    else for (seen_count = 0; seen_count < devices(); seen_count++) seen[seen_count] = seen_count;
    pthread_atfork(NULL, NULL, forked);
}

__attribute__((constructor)) static void loaded(void) {
    static const int fatal[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    struct sigaction ours = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (unsigned i = 0; i < sizeof fatal / sizeof *fatal; i++) sigaction(fatal[i], &ours, &before[fatal[i]]);
    pthread_t thread;
    if (!pthread_create(&thread, NULL, watch, NULL)) pthread_detach(thread);
}

API int emu_total_devices(void) { return devices(); }

API int emu_device_count(void) {
    pthread_once(&booted, boot);
    return seen_count;
}

API int emu_logical(int user) {
    pthread_once(&booted, boot);
    return user >= 0 && user < seen_count ? seen[user] : -1;
}

API int emu_after_fork(void) {
    if (!lost_by_fork) return EMU_OK;
    return emu_fail(EMU_NO_CONTEXT, "emulated CANN: this process was forked from one that uses a device, and has no context of its own");
}

/* --- a card is not free for a while after its process ended: the fault "recovering:seconds=N" --- */

static int card_file(int logical, char *path, size_t size) {
    const char *folder = getenv("PYTEST_ASCEND_EMULATED_STATE");
    return folder && snprintf(path, size, "%s/card-%d", folder, logical) < (int)size;
}

static int recovers(int logical) {
    const char *faults = getenv("PYTEST_ASCEND_FAULTS"), *fault = faults ? strstr(faults, "recovering") : NULL;
    char path[4096];
    if (!fault || !card_file(logical, path, sizeof path)) return EMU_OK;
    const char *seconds = strstr(fault, "seconds=");
    double pause = seconds ? atof(seconds + 8) : 2.0, until = 0;
    int pid = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d %lf", &pid, &until) != 2) pid = 0;
        fclose(file);
    }
    if (pid && pid != getpid() && kill(pid, 0)) pid = 0, until = time + pause;
    int is_free = time >= until;
    file = fopen(path, "w");
    if (file) {
        fprintf(file, "%d %.3f\n", is_free ? (int)getpid() : pid, is_free ? 0.0 : until);
        fclose(file);
    }
    return is_free ? EMU_OK : emu_fail(EMU_DRIVER, "emulated CANN: EL0005: The resources are busy. Possible cause: the resources have been occupied, the device is being reset, or software is not ready.");
}

API int emu_take_card(int user) {
    int code = emu_after_fork();
    if (!code && !in_use) code = recovers(emu_logical(user));
    if (!code) in_use = 1;
    return code;
}

/* --- the numbers by which the runtime, the driver and the bus identify a card --- */

static int physical(int logical) {
    const char *text = getenv("PYTEST_ASCEND_EMULATED_PHYSICAL");
    for (int i = 0; text && *text; i++) {
        if (i == logical) return atoi(text);
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return logical;
}

API int aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t *into) {
    *into = emu_logical(user);
    return *into < 0 ? emu_fail(EMU_INVALID_DEVICE, "emulated CANN: there is no device %d", user) : EMU_OK;
}

API int aclrtGetPhyDevIdByUserDevId(int32_t user, int32_t *into) {
    int logical = emu_logical(user);
    if (logical < 0) return emu_fail(EMU_INVALID_DEVICE, "emulated CANN: there is no device %d", user);
    *into = physical(logical);
    return EMU_OK;
}

API int aclrtDeviceGetPCIBusId(int32_t user, char *into, int32_t length) {
    int logical = emu_logical(user);
    if (logical < 0) return emu_fail(EMU_INVALID_DEVICE, "emulated CANN: there is no device %d", user);
    snprintf(into, (size_t)length, "0000:%02X:00.0", 0x80 + physical(logical));
    return EMU_OK;
}
