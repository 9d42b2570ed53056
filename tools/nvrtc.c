/* nvrtc.c - prints the file of the NVRTC that programs would use on this
 * machine; exits with 1, and says why, if there is none. */
#define _GNU_SOURCE
#include "backend/cuda/nvrtc.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

static int print(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *name = strrchr(info->dlpi_name, '/');
    if (!name || strncmp(name, "/libnvrtc.", 10) != 0) return 0;
    return puts(info->dlpi_name), 1;
}

int main(void)
{
    if (!nb_nvrtc_version()) return puts(nb_nvrtc_trouble()), 1;
    return !dl_iterate_phdr(print, NULL);
}
