/* caches.c - the code of the process and of the disk, as the public header has
 * it. */
#include "nabla/compile.h"

#include "backend/cpu/cache.h"
#include "base/disk.h"

nb_cache_stats nb_cache_stats_get(void)
{
    nb_code_stats s = nb_code_stats_get();
    return (nb_cache_stats){.hits = s.hits,
                            .disk_hits = s.disk_hits,
                            .misses = s.misses,
                            .bytes = s.bytes,
                            .compile_ms = s.compile_ms,
                            .trouble = s.trouble};
}

nb_status nb_cache_folder_set(const char *path)
{
    return NB_STATUS(nb_disk_folder_set(path));
}
