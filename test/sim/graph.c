/* graph.c - capture: refused so far. */
#include "sim.h"

CUresult sim_capture_put(sim_stream *s, sim_work w)
{
    (void)s;
    sim_work_free(&w);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sim_capture_record(sim_stream *s, sim_event *e)
{
    (void)s, (void)e;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sim_capture_wait(sim_stream *s, sim_event *e)
{
    (void)s, (void)e;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sim_exec_run(sim_card *c, struct sim_exec *e)
{
    (void)c, (void)e;
    return CUDA_ERROR_NOT_SUPPORTED;
}

void sim_exec_drop(struct sim_exec *e)
{
    (void)e;
}
