/* caches.c - the code of the process and of the disk, for the CPU and for cards,
 * as the public header has it. */
#include "nabla/compile.h"

#include "backend/cpu/cache.h"
#include "backend/cuda/build.h"
#include "base/disk.h"

nb_cache_stats nb_cache_stats_get(void)
{
    nb_code_stats s = nb_code_stats_get();
    nb_card_build_stats c = nb_card_build_stats_get();
    return (nb_cache_stats){.hits = s.hits + c.hits,
                            .disk_hits = s.disk_hits + c.disk_hits,
                            .misses = s.misses + c.misses,
                            .bytes = s.bytes,
                            .compile_ms = s.compile_ms + c.compile_ms,
                            .trouble = s.trouble};
}

nb_status nb_cache_folder_set(const char *path)
{
    return NB_STATUS(nb_disk_folder_set(path));
}
