/* SPDX-License-Identifier: GPL-2.0 */
/* Plays a vendor's host driver of GPUs for virtual machines, on whatever PCI function is bound to it. It is written from
 * the kernel's documents of mdev and VFIO and from the vendor's guide to them, and shares no code with what it tests.
 */
#ifndef HOST_DRIVER_H
#define HOST_DRIVER_H

#include <linux/mdev.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/vfio_pci_core.h>
#include <linux/wait.h>

/* Memory of each GPU, in MiB. */
#define GPU_MEMORY 40960U
#define NO_INSTANCE (~0U)

/* A type of vGPU. One that is backed by a GPU instance takes that whole instance, and none of the GPU's memory here. */
struct vgpu_type {
    unsigned int id, memory;
    bool backed;
    const char *number, *name;
};

#define VGPU_TYPES 5
extern const struct vgpu_type vgpu_types[VGPU_TYPES];
const struct vgpu_type *vgpu_type_of(unsigned int id);

/* A physical function. */
struct gpu {
    struct pci_dev *pdev;
    struct miscdevice node;
    char name[16];
    unsigned int minor;
    /* openers of the node, and whether it takes no more of them */
    struct mutex door;
    unsigned int openers;
    bool leaving;
    wait_queue_head_t closed;
    /* what vGPUs take: MiB in all, the size of each of them, GPU instances by their bits */
    struct mutex ledger;
    unsigned int used, vgpus, size;
    unsigned long instances, taken;
    struct offers *offers;
};

int gpu_probe(struct pci_dev *pdev);
void gpu_remove(struct pci_dev *pdev);
/* How many more vGPUs of a type there can be. */
unsigned int gpu_left(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance);
/* Returns 0, -ENOSPC, or -EINVAL for a type that needs an instance and has none. */
int gpu_take(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance);
void gpu_give_back(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance);

/* Types as mdev offers them below a function, at most most of them at a time. */
struct offers *offers_register(struct pci_dev *pdev, struct gpu *gpu, unsigned int most);
void offers_unregister(struct offers *offers);
extern struct mdev_driver mediated_driver;

int function_probe(struct pci_dev *pdev, struct gpu *gpu);
void function_remove(struct pci_dev *pdev);

bool is_mediated(void);
bool is_mixed(void);

#endif
