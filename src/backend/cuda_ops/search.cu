NB_CUDA(
/* The place of the first largest key of a line, by a team of 32 or of a
 * block's 256 threads; NaN, which has the greatest key, is also the least. */
extern "C" __global__ void __launch_bounds__(256)
search_extreme(const T *x, i64 *y, const dims lines, i64 n, i64 step, int least,
               int team)
{
    __shared__ K keys[256];
    __shared__ i64 places[256];
    i64 k = blockIdx.x * (256ll / team) + threadIdx.x / team;
    int me = threadIdx.x % team;
    K best = 0;
    i64 place = n;
    for (i64 i = me; k < lines.count && i < n; i += team) {
        K key = key_of(x[dims_at(lines, 0, k) + i * step]);
        bool nan = KIND == 2 && key == (K)(TOP | (TOP - 1));
        if (least && !nan) key = ~key & (TOP | (TOP - 1));
        if (place < n && key <= best) continue;
        best = key;
        place = i;
    }
    keys[threadIdx.x] = best;
    places[threadIdx.x] = place;
    for (int by = team / 2; by > 0; by /= 2) {
        __syncthreads();
        if (me >= by) continue;
        K other = keys[threadIdx.x + by];
        i64 there = places[threadIdx.x + by];
        bool first = there < n && (place == n || other > best ||
                                   (other == best && there < place));
        if (first) best = other;
        if (first) place = there;
        keys[threadIdx.x] = best;
        places[threadIdx.x] = place;
    }
    if (me == 0 && k < lines.count) y[dims_at(lines, 1, k)] = place;
}
)
