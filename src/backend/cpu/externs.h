/* externs.h - the functions outside that compiled code may call. */
#ifndef NB_CPU_EXTERNS_H
#define NB_CPU_EXTERNS_H

/* NULL: there is none of that name. */
void *nb_extern_find(const char *name);

#endif
