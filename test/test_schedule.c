/* test_schedule.c - pipelines: T58 as written, and what holds of all of them. */
#include "support/check.h"

#include "nabla/nabla.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 16 };

static void write(const nb_stage_turn *t, int n, char *text)
{
    for (int k = 0; k < n; k++)
        text += sprintf(text, "%s%c%d", k ? " " : "", t[k].backward ? 'B' : 'F',
                        t[k].microbatch);
}

static void as_written(void)
{
    static const int live[] = {4, 3, 2, 1}, stash[] = {7, 5, 3, 1};
    nb_stage_turn t[16];
    char text[256];
    int slots, most;
    for (int s = 0; s < 4; s++) {
        expect(nb_schedule(NB_SCHEDULE_1F1B, 4, 8, s, t, &slots, &most) ==
                       NB_OK &&
                   slots == 22 && most == live[s],
               "T58 stage %d: %d slots, %d alive", s, slots, most);
        expect(nb_schedule(NB_SCHEDULE_GPIPE, 4, 8, s, t, &slots, &most) ==
                       NB_OK &&
                   slots == 22 && most == 8,
               "GPipe stage %d: %d slots, %d alive", s, slots, most);
        expect(nb_schedule(NB_SCHEDULE_LOCKSTEP, 4, 8, s, t, &slots, &most) ==
                       NB_OK &&
                   slots == 14 && most == stash[s],
               "lock-step stage %d: %d ticks, %d kept", s, slots, most);
    }
    nb_schedule(NB_SCHEDULE_1F1B, 4, 8, 0, t, NULL, NULL);
    write(t, 7, text);
    expect(!strcmp(text, "F0 F1 F2 F3 B0 F4 B1"), "stage 0 does %s", text);
}

/* A stage does everything once, in order, and nothing before it can. */
static void can_be_followed(nb_schedule_kind kind, int stages, int n)
{
    static nb_stage_turn t[MOST][2 * MOST];
    int when[MOST][MOST][2], slots = 0;
    bool ok = true;
    for (int s = 0; s < stages; s++) {
        ok &= nb_schedule(kind, stages, n, s, t[s], &slots, NULL) == NB_OK;
        for (int k = 0; k < 2 * n; k++) {
            when[s][t[s][k].microbatch][t[s][k].backward] = t[s][k].slot;
            ok &= t[s][k].slot < slots;
            ok &= !k || t[s][k].slot > t[s][k - 1].slot ||
                  kind == NB_SCHEDULE_LOCKSTEP;
        }
    }
    int wait = kind == NB_SCHEDULE_LOCKSTEP ? 0 : 1;
    for (int s = 0; s < stages; s++)
        for (int b = 0; b < n; b++) {
            ok &= !s || when[s][b][0] > when[s - 1][b][0];
            ok &= s == stages - 1 || when[s][b][1] > when[s + 1][b][1];
            ok &= when[s][b][1] >= when[s][b][0] + wait;
        }
    expect(ok, "kind %d of %d stages, %d microbatches", (int)kind, stages, n);
}

int main(void)
{
    as_written();
    for (int kind = 0; kind < 3; kind++)
        for (int s = 1; s <= 6; s++)
            for (int n = 1; n <= 9; n++)
                can_be_followed((nb_schedule_kind)kind, s, n);
    FAILS("no stages",
          nb_schedule(NB_SCHEDULE_1F1B, 0, 8, 0, NULL, NULL, NULL) == NB_OK,
          NB_EVALUE, "0 stages");
    FAILS("a stage too many",
          nb_schedule(NB_SCHEDULE_1F1B, 4, 8, 4, NULL, NULL, NULL) == NB_OK,
          NB_EVALUE, "no stage 4");
    FAILS("no such kind",
          nb_schedule((nb_schedule_kind)7, 4, 8, 0, NULL, NULL, NULL) == NB_OK,
          NB_EVALUE, "no kind");
    return tally();
}
