/* memory.c - device memory: pages of a card's own stretch of addresses, each
 * allocation at the end of its pages with a gap behind it, never the same
 * address twice.  Outside of kernels and copies nobody may touch it.  Fresh
 * memory is all ones: NaN, or -1. */
#define _GNU_SOURCE
#include "sim.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, GAP = 1 << 20, ALIGN = 256, POISON = 16 << 20 };
enum { SMALL = 1 << 16, LARGE = 1 << 20, FEW = 32, PIECES = 1 << 16 };

static sim_ranges pinned;

static bool guarded(void)
{
    return sim_setting("NABLA_SIM_GUARD", 1) != 0;
}

/* The last range that begins at or before an address. */
static int before(const sim_ranges *r, uint64_t at)
{
    int low = 0, high = r->count;
    while (low < high) {
        int i = (low + high) / 2;
        if (r->list[i].at <= at)
            low = i + 1;
        else
            high = i;
    }
    return low - 1;
}

static const sim_range *range_of(const sim_ranges *r, uint64_t at)
{
    int i = before(r, at);
    if (i < 0 || at - r->list[i].at >= r->list[i].bytes) return NULL;
    return &r->list[i];
}

static bool add(sim_ranges *r, sim_range new)
{
    if (r->count == r->room) {
        int room = r->room ? 2 * r->room : 64;
        sim_range *list = realloc(r->list, (size_t)room * sizeof *list);
        if (!list) return false;
        r->list = list, r->room = room;
    }
    int i = before(r, new.at) + 1;
    memmove(&r->list[i + 1], &r->list[i],
            (size_t)(r->count - i) * sizeof *r->list);
    r->list[i] = new;
    r->count++;
    return true;
}

static bool take(sim_ranges *r, uint64_t at, sim_range *taken)
{
    int i = before(r, at);
    if (i < 0 || r->list[i].at != at) return false;
    *taken = r->list[i];
    r->count--;
    memmove(&r->list[i], &r->list[i + 1],
            (size_t)(r->count - i) * sizeof *r->list);
    return true;
}

static void allow(uint64_t at, uint64_t bytes, int how)
{
    mprotect((void *)(uintptr_t)at, bytes, how);
}

/* Memory is opened piece by piece where it is touched, and closed when the last
 * user has gone: what is not used costs nothing.  Few pieces are small ones. */
typedef struct piece {
    uint64_t at, bytes;
    int card;
} piece;

static piece pieces[PIECES];
static int piece_count;

void sim_open(sim_card *c)
{
    c->open++;
}

void sim_close(sim_card *c)
{
    int kept = 0;
    if (--c->open) return;
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].card == c->id)
            allow(pieces[i].at, pieces[i].bytes, PROT_NONE);
        else
            pieces[kept++] = pieces[i];
    piece_count = kept;
}

/* Called from the handler of a fault: nothing here may allocate. */
uint64_t sim_touch(uint64_t at)
{
    sim_card *c = sim_memory_card(at);
    int i =
        c && c->open && guarded() ? before(&c->memory, at | (PAGE - 1)) : -1;
    const sim_range *r = i < 0 ? NULL : &c->memory.list[i];
    if (!r || at - r->page >= r->pages || piece_count == PIECES) return 0;
    uint64_t size = piece_count < FEW ? SMALL : LARGE;
    uint64_t first = r->page + (at - r->page) / size * size;
    uint64_t left = r->page + r->pages - first;
    piece p = {first, left < size ? left : size, c->id};
    if (piece_count == PIECES - 1) p.at = r->page, p.bytes = r->pages;
    allow(p.at, p.bytes, PROT_READ | PROT_WRITE);
    pieces[piece_count++] = p;
    return p.at + p.bytes;
}

void sim_reach(uint64_t at, size_t n)
{
    uint64_t end = at + n;
    while (at && at < end)
        at = sim_touch(at);
}

CUresult sim_memory_new(sim_card *c, size_t bytes, uint64_t *at)
{
    uint64_t size = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    if (size < bytes || c->used + size > sim_card_bytes())
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t start = c->top ? c->top : GAP;
    sim_range r = {.bytes = bytes, .pages = pages};
    r.page = (uint64_t)(uintptr_t)c->base + start;
    r.at = r.page + pages - size;
    if (!add(&c->memory, r)) return CUDA_ERROR_OUT_OF_MEMORY;
    c->top = start + pages + GAP;
    c->used += size;
    allow(r.page, pages, PROT_READ | PROT_WRITE);
    memset((void *)(uintptr_t)r.at, 0xff, bytes < POISON ? bytes : POISON);
    if (guarded()) allow(r.page, pages, PROT_NONE);
    *at = r.at;
    return CUDA_SUCCESS;
}

static void give_back(sim_card *c, const sim_range *r)
{
    allow(r->page, r->pages, PROT_NONE);
    madvise((void *)(uintptr_t)r->page, r->pages, MADV_DONTNEED);
    c->used -= (r->bytes + ALIGN - 1) / ALIGN * ALIGN;
}

bool sim_memory_free(sim_card *c, uint64_t at)
{
    sim_range r;
    if (!take(&c->memory, at, &r)) return false;
    give_back(c, &r);
    return true;
}

void sim_memory_reset(sim_card *c)
{
    for (int i = 0; i < c->memory.count; i++)
        give_back(c, &c->memory.list[i]);
    free(c->memory.list);
    c->memory = (sim_ranges){0};
}

bool sim_memory_holds(uint64_t at, size_t n)
{
    sim_card *c = sim_memory_card(at);
    const sim_range *r = c ? range_of(&c->memory, at) : NULL;
    return r && n <= r->at + r->bytes - at;
}

bool sim_pinned(uint64_t at)
{
    return range_of(&pinned, at) != NULL;
}

bool sim_pin(void *at, size_t bytes)
{
    return add(&pinned, (sim_range){.at = (uintptr_t)at, .bytes = bytes});
}

bool sim_unpin(void *at)
{
    sim_range r;
    return take(&pinned, (uintptr_t)at, &r);
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    SIM_CARD_TURN;
    if (!left || !total) return CUDA_ERROR_INVALID_VALUE;
    *left = sim_card_bytes() - card->used;
    *total = sim_card_bytes();
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes)
{
    SIM_CARD_TURN;
    if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    uint64_t at;
    CUresult code = sim_memory_new(card, bytes, &at);
    if (!code) *to = at;
    return code;
}

/* What runs on the card may use it: that ends first. */
CUresult cuMemFree_v2(CUdeviceptr at)
{
    SIM_CARD_TURN;
    if (!at) return CUDA_SUCCESS;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_card *owner = sim_memory_card(at);
    if (!owner) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = sim_finish(owner);
    if (code) return code;
    return sim_memory_free(owner, at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocAsync(CUdeviceptr *to, size_t bytes, CUstream stream)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    uint64_t at;
    CUresult code = sim_memory_new(card, bytes, &at);
    if (!code) *to = at;
    return code;
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
    SIM_CARD_TURN;
    if (!at) return CUDA_SUCCESS;
    if (!sim_memory_holds(at, 1)) return CUDA_ERROR_INVALID_VALUE;
    return sim_put(card, stream, (sim_work){.kind = SIM_FREE, .at = at});
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                 CUdeviceptr at)
{
    SIM_CARD_TURN;
    sim_card *owner = sim_memory_card(at);
    const sim_range *r = owner ? range_of(&owner->memory, at) : NULL;
    if (!r) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = r->at;
    if (bytes) *bytes = r->bytes;
    return CUDA_SUCCESS;
}

static CUresult host_new(sim_card *card, void **to, size_t bytes)
{
    if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    void *at = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!at || !sim_pin(at, bytes)) {
        free(at);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *to = at;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned flags)
{
    SIM_CARD_TURN;
    (void)flags;
    return host_new(card, to, bytes);
}

CUresult cuMemAllocHost_v2(void **to, size_t bytes)
{
    SIM_CARD_TURN;
    return host_new(card, to, bytes);
}

CUresult cuMemFreeHost(void *at)
{
    SIM_CARD_TURN;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult code = sim_finish(card);
    if (code) return code;
    if (!sim_unpin(at)) return CUDA_ERROR_INVALID_VALUE;
    free(at);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    SIM_CARD_TURN;
    (void)flags;
    if (!at || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (sim_pinned((uintptr_t)at))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return sim_pin(at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostUnregister(void *at)
{
    SIM_CARD_TURN;
    CUresult code = sim_finish(card);
    if (code) return code;
    return sim_unpin(at) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *at, unsigned flags)
{
    SIM_CARD_TURN;
    if (!to || flags || !sim_pinned((uintptr_t)at))
        return CUDA_ERROR_INVALID_VALUE;
    *to = (uintptr_t)at;
    return CUDA_SUCCESS;
}

enum {
    POINTER_CONTEXT = 1,
    POINTER_KIND = 2,
    POINTER_DEVICE = 3,
    POINTER_HOST = 4,
    POINTER_MANAGED = 8,
    POINTER_CARD = 9,
    POINTER_START = 11,
    POINTER_SIZE = 12
};

static CUresult pointer_attribute(void *value, int attribute, CUdeviceptr at)
{
    sim_card *owner = sim_memory_card(at);
    const sim_range *r = range_of(owner ? &owner->memory : &pinned, at);
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (!r) return CUDA_ERROR_INVALID_VALUE;
    if (!owner) owner = sim_card_current();
    bool host = !sim_memory_card(at);
    switch (attribute) {
    case POINTER_CONTEXT: *(CUcontext *)value = owner; break;
    case POINTER_KIND: *(unsigned *)value = host ? 1 : 2; break;
    case POINTER_DEVICE: *(CUdeviceptr *)value = at; break;
    case POINTER_HOST:
        if (!host) return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)value = at;
        break;
    case POINTER_MANAGED: *(unsigned char *)value = 0; break;
    case POINTER_CARD: *(int *)value = owner->id; break;
    case POINTER_START: *(CUdeviceptr *)value = r->at; break;
    case POINTER_SIZE: *(size_t *)value = r->bytes; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr at)
{
    SIM_CARD_TURN;
    return pointer_attribute(value, attribute, at);
}

/* As the driver does, an address it does not know gets zeros. */
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                CUdeviceptr at)
{
    SIM_CARD_TURN;
    for (unsigned i = 0; i < count; i++) {
        uint64_t none = 0;
        if (!pointer_attribute(values[i], attributes[i], at)) continue;
        bool small = attributes[i] == POINTER_KIND;
        if (attributes[i] == POINTER_CARD)
            *(int *)values[i] = -2;
        else if (attributes[i] == POINTER_MANAGED)
            *(unsigned char *)values[i] = 0;
        else
            memcpy(values[i], &none, small ? 4 : 8);
    }
    return CUDA_SUCCESS;
}
