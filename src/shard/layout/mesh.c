/* mesh.c - meshes as values: one of each kind, for ever. */
#include "shard/layout/mesh.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "nabla/device.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = UINT16_MAX }; /* so that nb_axis can say any size */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const nb_mesh *first;

static bool is_name(const char *s)
{
    if (!s || !(isalpha((unsigned char)*s) || *s == '_')) return false;
    while (isalnum((unsigned char)*s) || *s == '_')
        s++;
    return !*s;
}

static bool check_axes(const char *name, int naxes, const char *const *axis,
                       const int *size, int *devices)
{
    int64_t n = 1;
    if (!is_name(name))
        return nb_fail(NB_EVALUE, "mesh: '%s' is not a name", name ? name : "");
    if (naxes < 0 || naxes > NB_MESH_AXES)
        return nb_fail(NB_EVALUE, "mesh @%s: has %d axes, %d at most", name,
                       naxes, NB_MESH_AXES);
    for (int k = 0; k < naxes; k++) {
        if (!is_name(axis[k]))
            return nb_fail(NB_EVALUE, "mesh @%s: axis '%s' is not a name", name,
                           axis[k] ? axis[k] : "");
        for (int j = 0; j < k; j++)
            if (strcmp(axis[j], axis[k]) == 0)
                return nb_fail(NB_EVALUE, "mesh @%s: has axis '%s' twice", name,
                               axis[k]);
        if (size[k] < 1)
            return nb_fail(NB_EVALUE, "mesh @%s: axis '%s' has size %d", name,
                           axis[k], size[k]);
        n *= size[k];
        if (n > MOST_DEVICES)
            return nb_fail(NB_EVALUE, "mesh @%s: has more than %d devices",
                           name, MOST_DEVICES);
    }
    *devices = (int)n;
    return true;
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static bool check_devices(const char *name, int n, const int *device)
{
    int *sorted = nb_alloc((size_t)n * sizeof *sorted), i = 1;
    if (!sorted) return false;
    memcpy(sorted, device, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_number);
    int least = sorted[0];
    while (i < n && sorted[i] != sorted[i - 1])
        i++;
    int twice = i < n ? sorted[i] : -1;
    nb_free(sorted);
    if (least < 0)
        return nb_fail(NB_EVALUE, "mesh @%s: device %d", name, least);
    if (twice >= 0)
        return nb_fail(NB_EVALUE, "mesh @%s: has device %d twice", name, twice);
    return true;
}

/* What a mesh is made of. */
typedef struct order {
    const char *name;
    int naxes, n;
    const char *const *axis;
    const int *size, *devices, *on;
    int rules, by_default;
} order;

static bool is_same(const nb_mesh *m, const order *o)
{
    if (m->naxes != o->naxes || strcmp(m->name, o->name) != 0) return false;
    if (m->rules != o->rules || !m->on != !o->on) return false;
    if (!m->on && m->by_default != o->by_default) return false;
    for (int k = 0; k < o->naxes; k++)
        if (m->size[k] != o->size[k] || strcmp(m->axis[k], o->axis[k]) != 0)
            return false;
    for (int i = 0; i < m->ndevices; i++)
        if (m->device[i] != (o->devices ? o->devices[i] : i) ||
            (m->on && m->on[i] != o->on[i]))
            return false;
    return true;
}

/* One block: the mesh, its devices, where they are, its names. */
static nb_mesh *make(const order *o)
{
    size_t n = (size_t)o->n;
    size_t bytes = sizeof(nb_mesh) + 2 * n * sizeof(int) + strlen(o->name) + 1;
    for (int k = 0; k < o->naxes; k++)
        bytes += strlen(o->axis[k]) + 1;
    nb_mesh *m = nb_alloc_forever(bytes);
    if (!m) return NULL;
    int *device = (int *)(m + 1), stride = 1;
    char *text = (char *)(device + 2 * n);
    *m = (nb_mesh){.naxes = o->naxes, .ndevices = o->n, .device = device};
    m->rules = o->rules;
    m->place = device + n;
    m->by_default = o->by_default;
    if (o->on) m->on = memcpy(m->place, o->on, n * sizeof *o->on);
    m->name = strcpy(text, o->name);
    text += strlen(o->name) + 1;
    for (int i = 0; i < o->n; i++)
        device[i] = o->devices ? o->devices[i] : i;
    for (int k = o->naxes - 1; k >= 0; k--) {
        m->axis[k] = strcpy(text, o->axis[k]);
        text += strlen(o->axis[k]) + 1;
        m->size[k] = o->size[k];
        m->stride[k] = stride;
        m->message[k] = 0;
        m->byte[k] = 1;
        stride *= o->size[k];
    }
    return m;
}

/* The one that there is, or a new one. */
static const nb_mesh *get(const order *o)
{
    pthread_mutex_lock(&lock);
    const nb_mesh *m = first;
    while (m && !is_same(m, o))
        m = m->next;
    if (!m) {
        nb_mesh *fresh = make(o);
        if (fresh) {
            fresh->next = first;
            first = fresh;
        }
        m = fresh;
    }
    pthread_mutex_unlock(&lock);
    return m;
}

static order order_like(const nb_mesh *m)
{
    return (order){.name = m->name,
                   .naxes = m->naxes,
                   .n = m->ndevices,
                   .axis = m->axis,
                   .size = m->size,
                   .devices = m->device,
                   .on = m->on,
                   .rules = m->rules,
                   .by_default = m->by_default};
}

const nb_mesh *nb_mesh_new(const char *name, int naxes, const char *const *axis,
                           const int *size, const int *devices)
{
    int n = 0;
    if (!check_axes(name, naxes, axis, size, &n) ||
        (devices && !check_devices(name, n, devices)))
        return NULL;
    order o = {name, naxes, n, axis, size, devices, NULL, 0, 0};
    o.by_default = nb_default_device();
    return get(&o);
}

const nb_mesh *nb_mesh_with(const nb_mesh *m, int rules)
{
    if (!m) return NB_STATUS(false), NULL;
    if (rules & ~(NB_MESH_GATHER | NB_MESH_MASK))
        return nb_fail(NB_EVALUE, "mesh @%s: there are no rules %d", m->name,
                       rules);
    order o = order_like(m);
    o.rules = rules;
    return get(&o);
}

const nb_mesh *nb_mesh_on(const nb_mesh *m, const int *device)
{
    if (!m) return NB_STATUS(false), NULL;
    order o = order_like(m);
    for (int i = 0; device && i < m->ndevices; i++)
        if (!nb_device_name(device[i])) return NULL;
    o.on = device;
    return get(&o);
}

const char *nb_mesh_name(const nb_mesh *m)
{
    return m ? m->name : NULL;
}

int nb_mesh_axes(const nb_mesh *m)
{
    return m ? m->naxes : 0;
}

const char *nb_mesh_axis_name(const nb_mesh *m, int k)
{
    return !m || k < 0 || k >= m->naxes ? NULL : m->axis[k];
}

int nb_mesh_axis_size(const nb_mesh *m, int k)
{
    return !m || k < 0 || k >= m->naxes ? 0 : m->size[k];
}

int nb_mesh_axis_find(const nb_mesh *m, const char *axis)
{
    for (int k = 0; m && k < m->naxes; k++)
        if (strcmp(m->axis[k], axis) == 0) return k;
    return -1;
}

int nb_mesh_devices(const nb_mesh *m)
{
    return m ? m->ndevices : 0;
}

int nb_mesh_device(const nb_mesh *m, int position)
{
    return !m || position < 0 || position >= m->ndevices ? -1
                                                         : m->device[position];
}

int nb_mesh_position(const nb_mesh *m, int device)
{
    for (int i = 0; m && i < m->ndevices; i++)
        if (m->device[i] == device) return i;
    return -1;
}

int nb_mesh_coordinate(const nb_mesh *m, int position, int axis)
{
    if (!m || axis < 0 || axis >= m->naxes || position < 0 ||
        position >= m->ndevices)
        return -1;
    return position / m->stride[axis] % m->size[axis];
}

nb_status nb_mesh_set_cost(const nb_mesh *m, int axis, double message,
                           double byte)
{
    if (!m) return NB_STATUS(false);
    if (axis < 0 || axis >= m->naxes)
        return nb_fail(NB_EVALUE, "mesh @%s: has no axis %d", m->name, axis),
               NB_EVALUE;
    if (!(message >= 0) || !(byte >= 0))
        return nb_fail(NB_EVALUE, "mesh @%s: a cost is below zero", m->name),
               NB_EVALUE;
    pthread_mutex_lock(&lock);
    ((nb_mesh *)m)->message[axis] = message;
    ((nb_mesh *)m)->byte[axis] = byte;
    pthread_mutex_unlock(&lock);
    return NB_OK;
}
