NB_CUDA(
/* Keys are ordered as the elements: signed numbers are moved up by half the
 * range; the bits of positive floats are ordered as they are, those of negative
 * ones the other way round; -0 is 0, and NaN the greatest. */
static __device__ __forceinline__ K key_of(T x)
{
    if (KIND == 0) return (K)x;
    if (KIND == 1) return (K)x ^ TOP;
    K bits = (K)x;
    K sign = bits & TOP;
    K size = bits ^ sign;
    if (size > LIMIT) return (K)(TOP | (TOP - 1));
    if (size == 0) return TOP;
    return sign ? TOP - 1 - size : TOP | size;
}
)
