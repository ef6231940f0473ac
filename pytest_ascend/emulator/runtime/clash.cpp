/* Lets torch_npu be loaded together with a torch that was built with CUDA.
 *
 * Both register settings of the same names with torch's allocator, which ends the process at the second registration of
 * a name. This library removes the names from torch's set before torch_npu registers them: it must be loaded after
 * torch and before libtorch_npu.so is initialised. */
#include <dlfcn.h>

#include <string>
#include <unordered_set>

using Names = std::unordered_set<std::string>;

namespace {

constexpr const char *both_register[] = {"pinned_reserve_segment_size_mb", "per_process_memory_fraction"};

/* Torch's set: returned by a function since 2.14; before, the function is inline and the set has a symbol. */
Names *registered() {
    void *torch = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
    if (!torch) return nullptr;
#define KEYS "N3c1016CachingAllocator26AcceleratorAllocatorConfig14getMutableKeysB5cxx11Ev"
    if (void *function = dlsym(torch, "_Z" KEYS)) return &reinterpret_cast<Names &(*)()>(function)();
    return static_cast<Names *>(dlsym(torch, "_ZZ" KEYS "E4keys"));
}

}  // namespace

__attribute__((constructor)) static void forget() {
    if (Names *names = registered())
        for (const char *each : both_register) names->erase(each);
}
