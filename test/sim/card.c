/* card.c - the driver, its cards and their contexts.  A card looks like an H100
 * of a few processors: what kernels are chosen by is like the real thing's. */
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { DEPTH = 16 };

#define SPAN (UINT64_C(1) << 42)

static bool ready;
static int cards, arch;
static uint64_t card_bytes;
static sim_card card_list[SIM_CARDS];
static _Thread_local sim_card *stack[DEPTH];
static _Thread_local int depth;

bool sim_ready(void)
{
    return ready;
}

int sim_arch(void)
{
    return arch;
}

uint64_t sim_card_bytes(void)
{
    return card_bytes;
}

int sim_processors(void)
{
    return (int)sim_setting("NABLA_SIM_PROCESSORS", 4);
}

int sim_shared_most(void)
{
    if (arch == 80 || arch == 87) return 163 << 10;
    return arch >= 90 && arch < 120 ? 227 << 10 : 99 << 10;
}

uint64_t sim_memory_used(void)
{
    uint64_t used = 0;
    for (int i = 0; i < cards; i++)
        used += card_list[i].used;
    return used;
}

sim_card *sim_card_at(int id)
{
    return id >= 0 && id < cards ? &card_list[id] : NULL;
}

sim_card *sim_card_current(void)
{
    sim_card *c = depth ? stack[depth - 1] : NULL;
    return c && c->refs ? c : NULL;
}

CUresult cuInit(unsigned flags)
{
    SIM_TURN;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (ready) return CUDA_SUCCESS;
    int n = (int)sim_setting("NABLA_SIM_CARDS", 1);
    if (n < 1) return CUDA_ERROR_NO_DEVICE;
    cards = n < SIM_CARDS ? n : SIM_CARDS;
    arch = (int)sim_setting("NABLA_SIM_ARCH", 90);
    card_bytes = (uint64_t)sim_setting("NABLA_SIM_MEMORY", INT64_C(16) << 30);
    for (int i = 0; i < cards; i++) {
        sim_card *c = &card_list[i];
        c->id = i;
        c->base = mmap(NULL, SPAN, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (c->base == MAP_FAILED) return CUDA_ERROR_OPERATING_SYSTEM;
    }
    ready = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    int code = sim_fails(__func__);
    if (code || !version) return code ? code : CUDA_ERROR_INVALID_VALUE;
    *version = (int)sim_setting("NABLA_SIM_VERSION", 13000);
    return CUDA_SUCCESS;
}

sim_card *sim_memory_card(uint64_t at)
{
    for (int i = 0; i < cards; i++)
        if (at - (uint64_t)(uintptr_t)card_list[i].base < SPAN)
            return &card_list[i];
    return NULL;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM",
     "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "peer access has not been enabled"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "operation not supported on global/shared address space"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which "
     "violated constraints specific to instantiated graph update"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int error_row(CUresult code)
{
    int n = (int)(sizeof errors / sizeof *errors);
    for (int i = 0; i < n; i++)
        if (errors[i].code == code) return i;
    return -1;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
    int i = error_row(code);
    if (!name || i < 0) return CUDA_ERROR_INVALID_VALUE;
    *name = errors[i].name;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
    int i = error_row(code);
    if (!text || i < 0) return CUDA_ERROR_INVALID_VALUE;
    *text = errors[i].text;
    return CUDA_SUCCESS;
}

/* The newest form of a name, out of this library alone. */
CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                             uint64_t flags, int *status)
{
    (void)version, (void)flags;
    if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
    Dl_info here;
    void *self = NULL;
    if (dladdr(errors, &here))
        self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = NULL;
    static const char *const forms[] = {"_v3", "_v2", ""};
    for (int i = 0; self && i < 3 && !*function; i++) {
        char full[256];
        snprintf(full, sizeof full, "%s%s", name, forms[i]);
        *function = dlsym(self, full);
    }
    if (self) dlclose(self);
    if (status) *status = *function ? 0 : 1;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuDeviceGetCount(int *count)
{
    SIM_TURN;
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = cards;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *card, int ordinal)
{
    SIM_TURN;
    if (!card) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *card = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int room, CUdevice card)
{
    SIM_TURN;
    if (!name || room <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(card)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)room, "Simulated card (sm_%d)", arch);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(char uuid[16], CUdevice card)
{
    SIM_TURN;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(card)) return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid, "simulated-card-", 15);
    uuid[15] = (char)('0' + card);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice card)
{
    SIM_TURN;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(card)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = card_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *name, int room, CUdevice card)
{
    SIM_TURN;
    if (!name || room <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(card)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)room, "0000:%02X:00.0", card + 1);
    return CUDA_SUCCESS;
}

static int attribute_of(int attribute, int card)
{
    switch (attribute) {
    case 1: return 1024;       /* threads of a block */
    case 2: return 1024;       /* along x */
    case 3: return 1024;       /* y */
    case 4: return 64;         /* z */
    case 5: return 2147483647; /* blocks along x */
    case 6: return 65535;      /* y */
    case 7: return 65535;      /* z */
    case 8: return 48 << 10;   /* shared bytes of a block */
    case 9: return 64 << 10;   /* constant bytes */
    case 10: return SIM_WARP;  /* lanes */
    case 12: return 65536;     /* registers of a block */
    case 13: return 1980000;   /* clock, kHz */
    case 14: return 512;       /* texture alignment */
    case 15: return 1;         /* copies overlap */
    case 16: return sim_processors();
    case 31: return 1;        /* kernels side by side */
    case 33: return card + 1; /* PCI bus */
    case 36: return 2619000;  /* memory clock, kHz */
    case 37: return 5120;     /* bus bits */
    case 38: return 50 << 20; /* L2 bytes */
    case 39: return arch == 86 || arch == 89 || arch >= 120 ? 1536 : 2048;
    case 40: return 3; /* copy engines */
    case 41: return 1; /* one address space */
    case 19: return 1; /* host memory mapped */
    case 75: return arch / 10;
    case 76: return arch % 10;
    case 78: return 1;                        /* priorities */
    case 81: return sim_shared_most() + 1024; /* shared of a processor */
    case 82: return 65536;                    /* registers of a processor */
    case 87: return 2;                        /* single to double */
    case 91: return 1;
    case 95: return 1; /* cooperative launches */
    case 97: return sim_shared_most();
    case 99: return 1;     /* host memory registers */
    case 106: return 32;   /* blocks of a processor */
    case 111: return 1024; /* reserved shared bytes */
    case 115: return 1;    /* cuMemAllocAsync */
    default: return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice card)
{
    SIM_TURN;
    if (!value || attribute < 1) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(card)) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_of(attribute, card);
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice card, CUdevice peer)
{
    SIM_TURN;
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_card_at(card) || !sim_card_at(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = card != peer;
    return CUDA_SUCCESS;
}

/* A context goes with all it holds, its fault too. */
static void reset(sim_card *c)
{
    sim_capture_abandon(c);
    sim_finish(c);
    sim_streams_free(c);
    sim_memory_reset(c);
    memset(c->peer, 0, sizeof c->peer);
    c->fault = 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice card)
{
    SIM_TURN;
    sim_card *c = sim_card_at(card);
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    if (!c->null) c->null = sim_stream_new(c, 0, 0);
    if (!c->null) return CUDA_ERROR_OUT_OF_MEMORY;
    c->refs++;
    *context = c;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice card)
{
    SIM_TURN;
    sim_card *c = sim_card_at(card);
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    if (!c->refs) return CUDA_ERROR_INVALID_CONTEXT;
    if (c->refs == 1) reset(c);
    c->refs--;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice card)
{
    SIM_TURN;
    sim_card *c = sim_card_at(card);
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    reset(c);
    if (c->refs) c->null = sim_stream_new(c, 0, 0);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice card, unsigned flags)
{
    SIM_TURN;
    (void)flags;
    return sim_card_at(card) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice card, unsigned *flags, int *on)
{
    SIM_TURN;
    sim_card *c = sim_card_at(card);
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    if (flags) *flags = 0;
    if (on) *on = c->refs > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_TURN;
    if (!context || depth == DEPTH) return CUDA_ERROR_INVALID_VALUE;
    if (!context->refs) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_TURN;
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_TURN;
    if (context && !context->refs) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_TURN;
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = sim_card_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *card)
{
    SIM_TURN;
    sim_card *c = sim_card_current();
    if (!c) return CUDA_ERROR_INVALID_CONTEXT;
    *card = c->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_CARD_TURN;
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    SIM_CARD_TURN;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return sim_finish(card);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    SIM_CARD_TURN;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!peer || peer == card) return CUDA_ERROR_INVALID_CONTEXT;
    if (card->peer[peer->id]) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    card->peer[peer->id] = true;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_CARD_TURN;
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    if (!card->peer[peer->id]) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    card->peer[peer->id] = false;
    return CUDA_SUCCESS;
}
