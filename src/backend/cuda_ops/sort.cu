NB_CUDA(
/* Tiles of 256 threads by ITEMS keys.  A warp has a run of its tile, in which
 * it ranks 32 keys at a time: of those with the same digit, the lower lanes come
 * first, after all that the warp saw before. */
enum { THREADS = 256, ITEMS = 8, TILE = THREADS * ITEMS, WARPS = 8, DIGITS = 256 };

static __device__ __forceinline__ u32 digit_of(K key, int shift)
{
    return (u32)(key >> shift) & 255u;
}

/* The rank of each key of this thread among those of its digit in the tile, and
 * how many of each digit there are, in seen[0..255] of every warp before. */
static __device__ __forceinline__ void rank_tile(const K *key, const bool *there,
                                                 int shift, u32 *rank,
                                                 u32 (*seen)[DIGITS], u32 *all)
{
    int warp = threadIdx.x / 32;
    u32 below = (1u << (threadIdx.x % 32)) - 1u;
    for (int d = threadIdx.x; d < WARPS * DIGITS; d += THREADS)
        seen[d / DIGITS][d % DIGITS] = 0;
    __syncthreads();
    for (int i = 0; i < ITEMS; i++) {
        u32 digit = there[i] ? digit_of(key[i], shift) : 256u;
        u32 same = __match_any_sync(0xffffffffu, digit);
        u32 before = there[i] ? seen[warp][digit] : 0u;
        rank[i] = before + (u32)__popc(same & below);
        __syncwarp();
        if (there[i] && !(same & below))
            seen[warp][digit] = before + (u32)__popc(same);
        __syncwarp();
    }
    __syncthreads();
    u32 sum = 0;
    for (int w = 0; w < WARPS; w++) {
        u32 mine = seen[w][threadIdx.x];
        seen[w][threadIdx.x] = sum;
        sum += mine;
    }
    all[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 0; i < ITEMS; i++)
        if (there[i]) rank[i] += seen[warp][digit_of(key[i], shift)];
}

static __device__ __forceinline__ int item_at(int i)
{
    return (threadIdx.x / 32) * 32 * ITEMS + i * 32 + threadIdx.x % 32;
}

/* Sums of what is before, over 256 threads. */
static __device__ __forceinline__ u32 sum_before(u32 x, u32 *room)
{
    u32 lane = threadIdx.x % 32;
    u32 y = x;
    for (u32 by = 1; by < 32; by *= 2) {
        u32 other = __shfl_up_sync(0xffffffffu, y, by);
        if (lane >= by) y += other;
    }
    if (lane == 31) room[threadIdx.x / 32] = y;
    __syncthreads();
    u32 sum = y - x;
    for (int w = 0; w < (int)(threadIdx.x / 32); w++)
        sum += room[w];
    __syncthreads();
    return sum;
}

extern "C" __global__ void __launch_bounds__(256)
sort_line(K *keys, u32 *numbers, i64 n, int bits)
{
    __shared__ K key_at[TILE];
    __shared__ u32 number_at[TILE];
    __shared__ u32 seen[WARPS][DIGITS];
    __shared__ u32 all[DIGITS];
    __shared__ u32 room[WARPS];
    K *line = keys + blockIdx.x * n;
    K key[ITEMS];
    u32 number[ITEMS];
    u32 rank[ITEMS];
    bool there[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        there[i] = item_at(i) < n;
        key[i] = there[i] ? line[item_at(i)] : (K)0;
        number[i] = (u32)item_at(i);
    }
    for (int shift = 0; shift < bits; shift += 8) {
        rank_tile(key, there, shift, rank, seen, all);
        u32 before = sum_before(all[threadIdx.x], room);
        all[threadIdx.x] = before;
        __syncthreads();
        for (int i = 0; i < ITEMS; i++) {
            if (!there[i]) continue;
            u32 to = all[digit_of(key[i], shift)] + rank[i];
            key_at[to] = key[i];
            number_at[to] = number[i];
        }
        __syncthreads();
        for (int i = 0; i < ITEMS; i++) {
            if (!there[i]) continue;
            key[i] = key_at[item_at(i)];
            number[i] = number_at[item_at(i)];
        }
        __syncthreads();
    }
    for (int i = 0; i < ITEMS; i++) {
        if (!there[i]) continue;
        line[item_at(i)] = key[i];
        numbers[blockIdx.x * n + item_at(i)] = number[i];
    }
}

/* How many of each digit a tile has: counts[line][digit][tile]. */
extern "C" __global__ void __launch_bounds__(256)
sort_count(const K *keys, u32 *counts, i64 n, i64 tiles, int shift)
{
    __shared__ u32 all[DIGITS];
    i64 line = blockIdx.x / tiles;
    i64 tile = blockIdx.x % tiles;
    all[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < ITEMS; i++) {
        i64 at = tile * TILE + i * THREADS + threadIdx.x;
        if (at < n) atomicAdd(&all[digit_of(keys[line * n + at], shift)], 1u);
    }
    __syncthreads();
    counts[(line * DIGITS + threadIdx.x) * tiles + tile] = all[threadIdx.x];
}

/* Counts become sums of what is before, along a line. */
extern "C" __global__ void __launch_bounds__(256)
sort_sum(u32 *counts, i64 tiles)
{
    __shared__ u32 room[WARPS];
    __shared__ u32 total;
    i64 m = DIGITS * tiles;
    u32 *line = counts + blockIdx.x * m;
    u32 before = 0;
    for (i64 from = 0; from < m; from += THREADS * 16) {
        u32 x[16];
        u32 sum = 0;
        for (int i = 0; i < 16; i++) {
            i64 at = from + threadIdx.x * 16 + i;
            x[i] = at < m ? line[at] : 0u;
            sum += x[i];
        }
        u32 mine = before + sum_before(sum, room);
        if (threadIdx.x == THREADS - 1) total = mine + sum;
        for (int i = 0; i < 16; i++) {
            i64 at = from + threadIdx.x * 16 + i;
            if (at < m) line[at] = mine;
            mine += x[i];
        }
        __syncthreads();
        before = total;
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256)
sort_place(const K *keys, const u32 *numbers, K *to_keys, u32 *to_numbers,
           const u32 *counts, i64 n, i64 tiles, int shift)
{
    __shared__ u32 seen[WARPS][DIGITS];
    __shared__ u32 all[DIGITS];
    i64 line = blockIdx.x / tiles;
    i64 tile = blockIdx.x % tiles;
    K key[ITEMS];
    u32 rank[ITEMS];
    bool there[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        i64 at = tile * TILE + item_at(i);
        there[i] = at < n;
        key[i] = there[i] ? keys[line * n + at] : (K)0;
    }
    rank_tile(key, there, shift, rank, seen, all);
    for (int i = 0; i < ITEMS; i++) {
        i64 at = tile * TILE + item_at(i);
        if (!there[i]) continue;
        i64 digit = digit_of(key[i], shift);
        i64 to = counts[(line * DIGITS + digit) * tiles + tile] + rank[i];
        to_keys[line * n + to] = key[i];
        to_numbers[line * n + to] = numbers ? numbers[line * n + at] : (u32)at;
    }
}
)
