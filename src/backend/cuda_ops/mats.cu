NB_CUDA(
/* Matrices of a batch: element i, j of matrix b. */
struct mats {
    T *at;
    i64 row, col, step;
};

static __device__ __forceinline__ T *place(const mats &m, i64 b, i64 i, i64 j)
{
    return m.at + b * m.step + i * m.row + j * m.col;
}

/* The larger of the two, or NaN if one is. */
static __device__ __forceinline__ T larger(T x, T y)
{
    return y > x || y != y ? y : x;
}

static __device__ __forceinline__ T warp_sum(T x)
{
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

/* Of all threads of a block, for all of them; by a tree that is the same every
 * time. */
static __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T part[32];
    int warps = blockDim.x / 32;
    T all = 0;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < warps; w++)
        all += part[w];
    return all;
}

static __device__ __forceinline__ T block_largest(T x)
{
    __shared__ T part[32];
    int warps = blockDim.x / 32;
    for (int by = 16; by > 0; by /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, by));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < warps; w++)
        x = larger(x, part[w]);
    return x;
}
)
