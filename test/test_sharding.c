#include "comm/comm.h"
#include "nabla/nabla.h"
#include "shard/plan.h"
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    nb_scope_open();
    const nb_mesh *m =
        nb_mesh_new("m", 2, (const char *[]){"dp", "tp"}, (int[]){2, 4}, NULL);
    nb_tensor *x = nb_reshape(
        nb_sin(nb_cast(nb_arange_int(0, 32 * 128, 1, NB_F32), NB_F32)), 2,
        (int64_t[]){32, 128});
    nb_tensor *w = nb_reshape(nb_cos(nb_arange_int(0, 128 * 256, 1, NB_F32)), 2,
                              (int64_t[]){128, 256});
    nb_tensor *xs = nb_reshard(x, nb_spec_parse(m, "[dp, .]"));
    nb_tensor *ws = nb_reshard(w, nb_spec_parse(m, "[., tp]"));
    if (!xs || !ws) puts(nb_error_message());
    nb_tensor *h = nb_relu(nb_matmul(xs, ws));
    if (!h) {
        puts(nb_error_message());
        return 1;
    }
    puts(nb_spec_text(nb_sharding(h)));
    nb_tensor *y = nb_mean(h, -1, NULL, false);
    if (!y) {
        puts(nb_error_message());
        return 1;
    }
    puts(nb_spec_text(nb_sharding(y)));
    double a = nb_item(y);
    if (nb_error_code()) puts(nb_error_message());
    nb_tensor *y0 = nb_mean(nb_relu(nb_matmul(x, w)), -1, NULL, false);
    printf("%.9g %.9g\n", a, nb_item(y0));
    for (int k = 0; k < 8; k++) {
        nb_comm_stats s = nb_comm_stats_get(m, k);
        printf("%s %ld %ld\n", nb_hop_name(k), s.calls, s.bytes);
    }
    nb_scope_close(0, NULL);
}
