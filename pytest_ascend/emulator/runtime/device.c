/* Devices, contexts, and settings that torch_npu reads back. */
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DEVICES = 16 };

typedef struct {
    int device;
    int is_active; /* between aclrtSetDevice and aclrtResetDevice */
} context;

static context contexts[MAX_DEVICES];
static __thread int current_device;
static __thread context *current_context;

static int is_device(int device) { return device >= 0 && device < emu_device_count(); }

API int aclInit(const char *config) { (void)config; return EMU_OK; }
API int aclFinalize(void) { return EMU_OK; }
API int aclmdlInitDump(void) { return EMU_OK; }
API int aclmdlFinalizeDump(void) { return EMU_OK; }

API int aclrtGetDeviceCount(uint32_t *count) {
    *count = (uint32_t)emu_device_count();
    return EMU_OK;
}

API int aclrtSetDevice(int32_t device) {
    if (!is_device(device))
        return emu_fail(EMU_INVALID_DEVICE, "emulated CANN: there is no device %d, only %d", device, emu_device_count());
    int code = emu_take_card(device);
    if (code) return code;
    contexts[device].device = device;
    contexts[device].is_active = 1;
    current_device = device;
    current_context = &contexts[device];
    return EMU_OK;
}

API int aclrtResetDevice(int32_t device) {
    if (!is_device(device)) return emu_fail(EMU_INVALID_DEVICE, "emulated CANN: there is no device %d", device);
    contexts[device].is_active = 0;
    return EMU_OK;
}

API int aclrtGetDevice(int32_t *device) {
    if (emu_after_fork()) return EMU_NO_CONTEXT;
    if (!current_context) return emu_fail(EMU_NO_CONTEXT, "emulated CANN: no device is set in this thread");
    *device = current_device;
    return EMU_OK;
}

API int aclrtGetCurrentContext(void **into) {
    if (!current_context) return emu_fail(EMU_NO_CONTEXT, "emulated CANN: no context is set in this thread");
    *into = current_context;
    return EMU_OK;
}

API int aclrtSetCurrentContext(void *given) {
    if (!given) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: a context must not be null");
    current_context = given;
    current_device = current_context->device;
    return EMU_OK;
}

/* Torch's autograd takes the streams of every device whose context is active; torch_npu ends the process if one of
 * these devices was never set. */
API int aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
    if (flags) *flags = 0;
    *active = is_device(device) && contexts[device].is_active;
    return EMU_OK;
}

/* The emulated chip: an Atlas A2, the most common one, unless another one is chosen. */
API const char *aclrtGetSocName(void) {
    const char *chosen = getenv("PYTEST_ASCEND_EMULATED_CHIP");
    return chosen && *chosen ? chosen : "Ascend910B1";
}

API int aclGetDeviceCapability(uint32_t device, int info, int64_t *value) {
    (void)device, (void)info;
    *value = 1;
    return EMU_OK;
}

/* Queried by attribute: bytes of memory (ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE), cores of any kind, and others. */
enum { TOTAL_MEMORY = 301 };

API int aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value) {
    (void)device;
    *value = attribute == TOTAL_MEMORY ? (int64_t)emu_memory_size() : 1;
    return EMU_OK;
}

API int aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
    *can = is_device(device) && is_device(peer) && device != peer;
    return EMU_OK;
}

API int aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
    (void)flags;
    return is_device(peer) ? EMU_OK : emu_fail(EMU_INVALID_DEVICE, "emulated CANN: there is no device %d", peer);
}

API int aclrtDeviceGetBareTgid(int32_t *pid) {
    *pid = (int32_t)getpid();
    return EMU_OK;
}

API int aclrtGetDeviceUtilizationRate(int32_t device, int32_t *utilization) {
    (void)device;
    memset(utilization, 0, 4 * sizeof *utilization); /* cube, vector, AI CPU, memory: nothing runs in the background */
    return EMU_OK;
}

/* --- the release of CANN, on which code paths of torch_npu depend --- */

enum { VERSION_LENGTH = 128, PART_LENGTH = 64, DRIVER_PACKAGE = 7 };

typedef struct {
    char version[VERSION_LENGTH];
    char parts[4][PART_LENGTH]; /* major, minor, release, patch */
    char reserved[VERSION_LENGTH];
} package_version;

static const char *cann_version(void) {
    const char *chosen = getenv("PYTEST_ASCEND_EMULATED_CANN");
    return chosen && *chosen ? chosen : "9.1.0";
}

int emu_cann_is_before(int major, int minor) {
    int have_major = 0, have_minor = 0;
    if (sscanf(cann_version(), "%d.%d", &have_major, &have_minor) != 2) return 0;
    return have_major < major || (have_major == major && have_minor < minor);
}

/* Releases before 8.1.RC1 have no such query, and the driver, which is not part of CANN, is not emulated. */
API int aclsysGetCANNVersion(int package, package_version *into) {
    if (emu_cann_is_before(8, 1))
        return emu_fail(EMU_NOT_SUPPORTED, "emulated CANN: %s has no aclsysGetCANNVersion", cann_version());
    if (package == DRIVER_PACKAGE) return emu_fail(EMU_NOT_SUPPORTED, "emulated CANN: there is no driver below it");
    memset(into, 0, sizeof *into);
    snprintf(into->version, sizeof into->version, "%s", cann_version());
    const char *rest = into->version;
    for (int part = 0; part < 4 && *rest; part++) {
        size_t length = strcspn(rest, ".-");
        snprintf(into->parts[part], PART_LENGTH, "%.*s", (int)length, rest);
        rest += length + (rest[length] != 0);
    }
    return EMU_OK;
}

API int aclsysGetVersionStr(char *package, char *version) {
    (void)package;
    snprintf(version, VERSION_LENGTH, "%s", cann_version());
    return EMU_OK;
}

/* --- settings that torch_npu reads back --- */

enum { PARAMETERS = 16 };
static int64_t system_parameters[PARAMETERS];

API int aclrtSetSysParamOpt(int option, int64_t value) {
    if (option < 0 || option >= PARAMETERS) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: no system parameter %d", option);
    system_parameters[option] = value;
    return EMU_OK;
}

API int aclrtCtxSetSysParamOpt(int option, int64_t value) { return aclrtSetSysParamOpt(option, value); }

API int aclrtGetSysParamOpt(int option, int64_t *value) {
    if (option < 0 || option >= PARAMETERS) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: no system parameter %d", option);
    *value = system_parameters[option];
    return EMU_OK;
}

/* Whether results that overflow are Inf and NaN, or saturate. The first 910, 310P and 310B only support the latter, a
 * 950 only the former. The requested mode is stored; kernels read it when the first of them is called. */
enum { SATURATION = 0, INF_NAN = 1 };
static int overflow_mode = -1;

int emu_is_first_910(const char *chip) {
    return !strncmp(chip, "Ascend910P", 10) || !strcmp(chip, "Ascend910A") || !strcmp(chip, "Ascend910B");
}

static int only_saturates(const char *chip) { return !strncmp(chip, "Ascend310", 9) || emu_is_first_910(chip); }

API int aclrtSetDeviceSatMode(int mode) {
    const char *chip = aclrtGetSocName();
    if (mode != SATURATION && mode != INF_NAN) return emu_fail(EMU_INVALID_PARAMETER, "emulated CANN: no overflow mode %d", mode);
    if (mode == (only_saturates(chip) ? INF_NAN : SATURATION) && (only_saturates(chip) || !strncmp(chip, "Ascend950", 9)))
        return emu_fail(EMU_NOT_SUPPORTED, "emulated CANN: an %s has no overflow mode %d", chip, mode);
    overflow_mode = mode;
    return EMU_OK;
}

API int aclrtGetDeviceSatMode(int *mode) {
    *mode = overflow_mode >= 0 ? overflow_mode : only_saturates(aclrtGetSocName()) ? SATURATION : INF_NAN;
    return EMU_OK;
}

/* Every compile option answers "disable": with JIT compilation off, torch_npu calls aclnn operators. */
API size_t aclGetCompileoptSize(int option) { (void)option; return 256; }
API int aclSetCompileopt(int option, const char *value) { (void)option, (void)value; return EMU_OK; }

API int aclGetCompileopt(int option, char *value, size_t length) {
    (void)option;
    snprintf(value, length, "disable");
    return EMU_OK;
}

/* --- profiling hooks of torch_npu's own operators: the records come from profiling.c --- */

API int halGetAPIVersion(int32_t *version) {
    *version = 0x071900; /* before times were given in cycles of the system counter */
    return EMU_OK;
}

API uint64_t MsprofGetHashId(const char *text, size_t length) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash;
}
API int32_t MsprofRegisterCallback(uint32_t module, void *callback) { (void)module, (void)callback; return EMU_OK; }
API int32_t MsprofReportAdditionalInfo(uint32_t aging, const void *data, uint32_t length) { (void)aging, (void)data, (void)length; return EMU_OK; }
API int32_t MsprofReportApi(uint32_t aging, const void *api) { (void)aging, (void)api; return EMU_OK; }
API int32_t MsprofReportCompactInfo(uint32_t aging, const void *data, uint32_t length) { (void)aging, (void)data, (void)length; return EMU_OK; }

API uint64_t MsprofSysCycleTime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
