/* Memory registered with HCCL, to save it copies: every transfer copies here, so there is nothing to do. Also functions
 * that are not emulated, which fail with their name. */
#include "hccl.h"



static int accepted(const communicator *comm, const char *function) {
    return comm ? HCCL_OK : hccl_fail(HCCL_E_PTR, "EI0003: In [%s], comm is null", function);
}

API int HcclCommSetMemoryRange(communicator *comm, void *base, size_t size, size_t alignment, uint64_t flags) {
    if (alignment || flags || !base || !size) return hccl_fail(HCCL_E_PARA, "EI0003: In [HcclCommSetMemoryRange], alignment and flags have to be 0");
    return accepted(comm, "HcclCommSetMemoryRange");
}

API int HcclCommUnsetMemoryRange(communicator *comm, void *base) { (void)base; return accepted(comm, "HcclCommUnsetMemoryRange"); }

API int HcclCommActivateCommMemory(communicator *comm, void *at, size_t size, size_t offset, void *handle, uint64_t flags) {
    (void)at, (void)size, (void)handle;
    if (offset || flags) return hccl_fail(HCCL_E_PARA, "EI0003: In [HcclCommActivateCommMemory], offset and flags have to be 0");
    return accepted(comm, "HcclCommActivateCommMemory");
}

API int HcclCommDeactivateCommMemory(communicator *comm, void *at) { (void)at; return accepted(comm, "HcclCommDeactivateCommMemory"); }

API int HcclCommRegister(communicator *comm, void *at, uint64_t size, void **handle, uint32_t flag) {
    (void)size, (void)flag;
    if (handle) *handle = at;
    return accepted(comm, "HcclCommRegister");
}

API int HcclCommDeregister(communicator *comm, void *handle) { (void)handle; return accepted(comm, "HcclCommDeregister"); }

API int HcclCommExchangeMem(communicator *comm, void *handle, const uint32_t *peers, uint32_t count) {
    for (uint32_t i = 0; comm && i < count; i++)
        if (peers[i] >= comm->ranks) return hccl_fail(HCCL_E_PARA, "EI0003: In [HcclCommExchangeMem], there is no rank %u", peers[i]);
    (void)handle;
    return accepted(comm, "HcclCommExchangeMem");
}

API int HcclCommSymWinRegister(communicator *comm, void *at, uint64_t size, void **handle, uint32_t flag) {
    return HcclCommRegister(comm, at, size, handle, flag);
}

API int HcclCommSymWinDeregister(void *handle) { (void)handle; return HCCL_OK; }

#define NOT_EMULATED(name) API int name(void) { emu_missing("function", #name); return HCCL_E_NOT_SUPPORT; }

NOT_EMULATED(HcclCommInitClusterInfo)
NOT_EMULATED(HcclCommInitClusterInfoConfig)
NOT_EMULATED(HcclCommWorkingDevNicSet)
NOT_EMULATED(HcclCommSuspend)
NOT_EMULATED(HcclCommResume)
NOT_EMULATED(HcommMemAlloc)
NOT_EMULATED(HcommMemFree)

API const char *HcclGetErrorString(int code) {
    static const char *const names[] = {"success", "parameter error", "empty pointer", "memory error", "internal error", "not support feature",
                                        "not found specific resource", "resource unavailable", "call system interface error", "timeout"};
    return code == HCCL_E_REMOTE ? "remote error" : code < 0 || code > 9 ? "unknown error" : names[code];
}
