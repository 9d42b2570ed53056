NB_CUDA(
extern "C" __global__ void pack(T *to, const T *from, dims d)
{
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x; k < d.count;
         k += step)
        to[k] = from[dims_at(d, 0, k)];
}
)
