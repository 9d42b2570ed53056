/* main.c - the smallest user of an installed libnabla: is the library the one
 * that the header and the package files speak of? */
#include <nabla/nabla.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    printf("nabla %s\n", nb_version());
    return argc != 2 || strcmp(argv[1], nb_version()) != 0;
}
