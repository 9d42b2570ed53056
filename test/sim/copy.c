/* copy.c - copies and fills.  A copy from pageable memory takes what is there
 * when it is asked for; one to pageable memory is finished when its call
 * returns; pinned memory is read and written late. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

static bool reachable(uint64_t at, size_t width, size_t rows, size_t pitch)
{
    if (!sim_memory_card(at) || !width || !rows) return true;
    return sim_memory_holds(at, (rows - 1) * pitch + width);
}

CUresult sim_copy_run(sim_card *c, const sim_copy *k)
{
    sim_card *to = sim_memory_card(k->to), *from = sim_memory_card(k->from);
    if (!reachable(k->to, k->width, k->rows, k->to_pitch) ||
        !reachable(k->from, k->width, k->rows, k->from_pitch))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    sim_open(to ? to : c);
    sim_open(from ? from : c);
    sim_reach(k->to, (k->rows - 1) * k->to_pitch + k->width);
    if (!k->staged)
        sim_reach(k->from, (k->rows - 1) * k->from_pitch + k->width);
    const char *source = k->staged ? k->staged : (char *)(uintptr_t)k->from;
    char *place = (char *)(uintptr_t)k->to;
    for (size_t i = 0; i < k->rows; i++)
        memmove(place + i * k->to_pitch, source + i * k->from_pitch, k->width);
    sim_close(from ? from : c);
    sim_close(to ? to : c);
    return CUDA_SUCCESS;
}

static void fill_row(char *at, const sim_fill *f)
{
    for (size_t i = 0; i < f->width; i++)
        memcpy(at + i * f->size, &f->value, f->size);
}

CUresult sim_fill_run(sim_card *c, const sim_fill *f)
{
    sim_card *to = sim_memory_card(f->to);
    if (!reachable(f->to, f->width * f->size, f->rows, f->pitch))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    sim_open(to ? to : c);
    sim_reach(f->to, (f->rows - 1) * f->pitch + f->width * f->size);
    for (size_t i = 0; i < f->rows; i++)
        fill_row((char *)(uintptr_t)f->to + i * f->pitch, f);
    sim_close(to ? to : c);
    return CUDA_SUCCESS;
}

static bool pageable(uint64_t at)
{
    return !sim_memory_card(at) && !sim_pinned(at);
}

static CUresult stage(sim_copy *k)
{
    k->staged = malloc(k->width * k->rows);
    if (!k->staged) return CUDA_ERROR_OUT_OF_MEMORY;
    const char *from = (const char *)(uintptr_t)k->from;
    for (size_t i = 0; i < k->rows; i++)
        memcpy((char *)k->staged + i * k->width, from + i * k->from_pitch,
               k->width);
    k->from_pitch = k->width;
    return CUDA_SUCCESS;
}

static CUresult copy_put(sim_card *c, sim_copy k, CUstream stream)
{
    sim_stream *s;
    if (!sim_stream_find(c, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    if (!k.width || !k.rows) return CUDA_SUCCESS;
    if (!k.to || !k.from) return CUDA_ERROR_INVALID_VALUE;
    if (!reachable(k.to, k.width, k.rows, k.to_pitch) ||
        !reachable(k.from, k.width, k.rows, k.from_pitch))
        return CUDA_ERROR_INVALID_VALUE;
    if (!s->capture && pageable(k.from)) {
        CUresult code = stage(&k);
        if (code) return code;
    }
    bool wait = !s->capture && pageable(k.to);
    CUresult code = sim_put(c, stream, (sim_work){.kind = SIM_COPY, .copy = k});
    if (code || !wait) return code;
    sim_run(s, s->issued);
    return c->fault;
}

static sim_copy row(uint64_t to, uint64_t from, size_t n)
{
    return (sim_copy){.to = to, .from = from, .width = n, .rows = 1};
}

static CUresult copy_now(sim_card *c, sim_copy k)
{
    CUresult code = copy_put(c, k, NULL);
    return code ? code : c->fault;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
    SIM_CARD_TURN;
    if (n && !sim_memory_card(to)) return CUDA_ERROR_INVALID_VALUE;
    return copy_now(card, row(to, (uintptr_t)from, n));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n)
{
    SIM_CARD_TURN;
    if (n && !sim_memory_card(from)) return CUDA_ERROR_INVALID_VALUE;
    return copy_now(card, row((uintptr_t)to, from, n));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    SIM_CARD_TURN;
    return copy_now(card, row(to, from, n));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    SIM_CARD_TURN;
    return copy_now(card, row(to, from, n));
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t n)
{
    SIM_CARD_TURN;
    if (sim_memory_card(to) != to_context ||
        sim_memory_card(from) != from_context)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_now(card, row(to, from, n));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n,
                              CUstream stream)
{
    SIM_CARD_TURN;
    if (n && !sim_memory_card(to)) return CUDA_ERROR_INVALID_VALUE;
    return copy_put(card, row(to, (uintptr_t)from, n), stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n,
                              CUstream stream)
{
    SIM_CARD_TURN;
    if (n && !sim_memory_card(from)) return CUDA_ERROR_INVALID_VALUE;
    return copy_put(card, row((uintptr_t)to, from, n), stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n,
                              CUstream stream)
{
    SIM_CARD_TURN;
    return copy_put(card, row(to, from, n), stream);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n,
                       CUstream stream)
{
    SIM_CARD_TURN;
    return copy_put(card, row(to, from, n), stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context,
                           CUdeviceptr from, CUcontext from_context, size_t n,
                           CUstream stream)
{
    SIM_CARD_TURN;
    if (sim_memory_card(to) != to_context ||
        sim_memory_card(from) != from_context)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_put(card, row(to, from, n), stream);
}

static sim_copy rectangle(const CUDA_MEMCPY2D *c)
{
    enum { HOST = 1 };
    sim_copy k = {.width = c->width, .rows = c->height};
    k.from_pitch = c->from_pitch ? c->from_pitch : c->width;
    k.to_pitch = c->to_pitch ? c->to_pitch : c->width;
    k.from = c->from_kind == HOST ? (uintptr_t)c->from_host : c->from_device;
    k.to = c->to_kind == HOST ? (uintptr_t)c->to_host : c->to_device;
    k.from += c->from_y * k.from_pitch + c->from_x;
    k.to += c->to_y * k.to_pitch + c->to_x;
    return k;
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    SIM_CARD_TURN;
    if (!copy) return CUDA_ERROR_INVALID_VALUE;
    return copy_now(card, rectangle(copy));
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    SIM_CARD_TURN;
    if (!copy) return CUDA_ERROR_INVALID_VALUE;
    return copy_put(card, rectangle(copy), stream);
}

static CUresult fill_put(sim_card *c, uint64_t to, unsigned value,
                         unsigned size, size_t n, CUstream stream)
{
    if (!n) return CUDA_SUCCESS;
    if (to % size || !sim_memory_holds(to, n * size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_fill f = {
        .to = to, .width = n, .rows = 1, .value = value, .size = size};
    return sim_put(c, stream, (sim_work){.kind = SIM_FILL, .fill = f});
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n)
{
    SIM_CARD_TURN;
    return fill_put(card, to, value, 1, n, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n)
{
    SIM_CARD_TURN;
    return fill_put(card, to, value, 2, n, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n)
{
    SIM_CARD_TURN;
    return fill_put(card, to, value, 4, n, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n,
                         CUstream stream)
{
    SIM_CARD_TURN;
    return fill_put(card, to, value, 1, n, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n,
                          CUstream stream)
{
    SIM_CARD_TURN;
    return fill_put(card, to, value, 2, n, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n,
                          CUstream stream)
{
    SIM_CARD_TURN;
    return fill_put(card, to, value, 4, n, stream);
}
