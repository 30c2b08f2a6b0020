// SPDX-License-Identifier: GPL-2.0
/* Types as mdev offers them, and a vGPU that is made of one: a PCI function that has nothing but its configuration. */
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/unaligned.h>
#include <linux/vfio.h>

#include "host_driver.h"

/* What is below one function: how many vGPUs it has left, whatever their types. */
struct offers {
    struct mdev_parent parent;
    struct gpu *gpu;
    atomic_t left;
    struct mdev_type types[VGPU_TYPES];
    struct mdev_type *list[VGPU_TYPES];
};

#define CONFIGURATION 256

struct vgpu {
    struct vfio_device vdev;
    struct offers *offers;
    const struct vgpu_type *type;
    u8 configuration[CONFIGURATION];
};

static struct offers *offers_of(struct mdev_type *type) {
    return container_of(type->parent, struct offers, parent);
}

static const struct vgpu_type *vgpu_type_at(struct mdev_type *type) {
    return &vgpu_types[type - offers_of(type)->types];
}

/* An offset of a VFIO file names a region in its upper bits. */
static u64 region_offset(unsigned int region) {
    return (u64)region << 40;
}

static ssize_t vgpu_copy(struct vgpu *vgpu, char __user *to, const char __user *from, size_t count,
                         loff_t *at) {
    u64 within = (u64)*at - region_offset(VFIO_PCI_CONFIG_REGION_INDEX);
    u8 *place;

    if (within >= CONFIGURATION) {
        return -EINVAL;
    }
    count = min_t(size_t, count, CONFIGURATION - within);
    place = vgpu->configuration + within;
    /* Of what a guest writes only the command register stays, so identity and addresses do not change. */
    if (to ? copy_to_user(to, place, count) != 0
           : within == PCI_COMMAND && count <= 2 && copy_from_user(place, from, count) != 0) {
        return -EFAULT;
    }
    *at += (loff_t)count;
    return (ssize_t)count;
}

static ssize_t vgpu_read(struct vfio_device *vdev, char __user *to, size_t count, loff_t *at) {
    return vgpu_copy(container_of(vdev, struct vgpu, vdev), to, NULL, count, at);
}

static ssize_t vgpu_write(struct vfio_device *vdev, const char __user *from, size_t count,
                          loff_t *at) {
    return vgpu_copy(container_of(vdev, struct vgpu, vdev), NULL, from, count, at);
}

static long vgpu_info(void __user *at) {
    struct vfio_device_info info = {
        .argsz = sizeof(info),
        .flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
        .num_regions = VFIO_PCI_NUM_REGIONS,
        .num_irqs = VFIO_PCI_NUM_IRQS,
    };

    return copy_to_user(at, &info, offsetofend(struct vfio_device_info, num_irqs)) ? -EFAULT : 0;
}

static long vgpu_region(void __user *at) {
    const size_t size = offsetofend(struct vfio_region_info, offset);
    struct vfio_region_info info;

    if (copy_from_user(&info, at, size)) {
        return -EFAULT;
    }
    if (info.index >= VFIO_PCI_NUM_REGIONS) {
        return -EINVAL;
    }
    info.offset = region_offset(info.index);
    info.cap_offset = 0;
    info.size = info.index == VFIO_PCI_CONFIG_REGION_INDEX ? CONFIGURATION : 0;
    info.flags = info.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
    return copy_to_user(at, &info, size) ? -EFAULT : 0;
}

static long vgpu_interrupt(void __user *at) {
    struct vfio_irq_info info;

    if (copy_from_user(&info, at, sizeof(info))) {
        return -EFAULT;
    }
    info.count = 0;
    info.flags = 0;
    return copy_to_user(at, &info, sizeof(info)) ? -EFAULT : 0;
}

static long vgpu_ioctl(struct vfio_device *vdev, unsigned int command, unsigned long argument) {
    void __user *at = (void __user *)argument;

    switch (command) {
    case VFIO_DEVICE_GET_INFO:
        return vgpu_info(at);
    case VFIO_DEVICE_GET_REGION_INFO:
        return vgpu_region(at);
    case VFIO_DEVICE_GET_IRQ_INFO:
        return vgpu_interrupt(at);
    case VFIO_DEVICE_RESET:
    case VFIO_DEVICE_SET_IRQS:
        return 0;
    default:
        return -ENOTTY;
    }
}

static int vgpu_open(struct vfio_device *vdev) {
    return 0;
}

static void vgpu_unmap(struct vfio_device *vdev, u64 address, u64 length) {
}

static int vgpu_init(struct vfio_device *vdev) {
    struct vgpu *vgpu = container_of(vdev, struct vgpu, vdev);
    struct mdev_device *mdev = to_mdev_device(vdev->dev);
    u8 *configuration = vgpu->configuration;
    int result;

    vgpu->offers = offers_of(mdev->type);
    vgpu->type = vgpu_type_at(mdev->type);
    if (atomic_dec_if_positive(&vgpu->offers->left) < 0) {
        return -ENOSPC;
    }
    result = gpu_take(vgpu->offers->gpu, vgpu->type, NO_INSTANCE);
    if (result) {
        atomic_inc(&vgpu->offers->left);
        return result;
    }
    put_unaligned_le16(PCI_VENDOR_ID_NVIDIA, configuration + PCI_VENDOR_ID);
    put_unaligned_le16(0x20b0, configuration + PCI_DEVICE_ID);
    put_unaligned_le16(PCI_CLASS_DISPLAY_3D, configuration + PCI_CLASS_DEVICE);
    put_unaligned_le16((u16)vgpu->type->id, configuration + PCI_SUBSYSTEM_ID);
    return 0;
}

static void vgpu_release(struct vfio_device *vdev) {
    struct vgpu *vgpu = container_of(vdev, struct vgpu, vdev);

    gpu_give_back(vgpu->offers->gpu, vgpu->type, NO_INSTANCE);
    atomic_inc(&vgpu->offers->left);
}

static const struct vfio_device_ops vgpu_operations = {
    .name = "nvidia-vgpu",
    .init = vgpu_init,
    .release = vgpu_release,
    .open_device = vgpu_open,
    .read = vgpu_read,
    .write = vgpu_write,
    .ioctl = vgpu_ioctl,
    .dma_unmap = vgpu_unmap,
    .bind_iommufd = vfio_iommufd_emulated_bind,
    .unbind_iommufd = vfio_iommufd_emulated_unbind,
    .attach_ioas = vfio_iommufd_emulated_attach_ioas,
    .detach_ioas = vfio_iommufd_emulated_detach_ioas,
};

static int mediated_probe(struct mdev_device *mdev) {
    struct vgpu *vgpu = vfio_alloc_device(vgpu, vdev, &mdev->dev, &vgpu_operations);
    int result;

    if (IS_ERR(vgpu)) {
        return (int)PTR_ERR(vgpu);
    }
    dev_set_drvdata(&mdev->dev, vgpu);
    result = vfio_register_emulated_iommu_dev(&vgpu->vdev);
    if (result) {
        vfio_put_device(&vgpu->vdev);
    }
    return result;
}

static void mediated_remove(struct mdev_device *mdev) {
    struct vgpu *vgpu = dev_get_drvdata(&mdev->dev);

    vfio_unregister_group_dev(&vgpu->vdev);
    vfio_put_device(&vgpu->vdev);
}

static unsigned int mediated_available(struct mdev_type *type) {
    struct offers *offers = offers_of(type);
    int most = atomic_read(&offers->left);

    return min_t(unsigned int, (unsigned int)most,
                 gpu_left(offers->gpu, vgpu_type_at(type), NO_INSTANCE));
}

static ssize_t mediated_description(struct mdev_type *type, char *text) {
    const struct vgpu_type *vgpu = vgpu_type_at(type);

    return sysfs_emit(text,
                      "num_heads=1, frl_config=60, framebuffer=%uM, max_resolution=4096x2160, "
                      "max_instance=%u\n",
                      vgpu->memory, GPU_MEMORY / vgpu->memory);
}

struct mdev_driver mediated_driver = {
    .device_api = VFIO_DEVICE_API_PCI_STRING,
    .probe = mediated_probe,
    .remove = mediated_remove,
    .get_available = mediated_available,
    .show_description = mediated_description,
    .driver = {.name = "nvidia-vgpu", .owner = THIS_MODULE, .mod_name = KBUILD_MODNAME},
};

struct offers *offers_register(struct pci_dev *pdev, struct gpu *gpu, unsigned int most) {
    struct offers *offers = kzalloc(sizeof(*offers), GFP_KERNEL);
    unsigned int count = 0;
    int result;

    if (!offers) {
        return ERR_PTR(-ENOMEM);
    }
    offers->gpu = gpu;
    atomic_set(&offers->left, (int)most);
    /* The kernel keeps a list in each type, so every parent has types of its own. */
    for (; count < VGPU_TYPES && !vgpu_types[count].backed; count++) {
        offers->types[count].sysfs_name = vgpu_types[count].number;
        offers->types[count].pretty_name = vgpu_types[count].name;
        offers->list[count] = &offers->types[count];
    }
    result =
        mdev_register_parent(&offers->parent, &pdev->dev, &mediated_driver, offers->list, count);
    if (result) {
        kfree(offers);
        return ERR_PTR(result);
    }
    return offers;
}

void offers_unregister(struct offers *offers) {
    mdev_unregister_parent(&offers->parent);
    kfree(offers);
}
