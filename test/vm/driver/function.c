// SPDX-License-Identifier: GPL-2.0
/* A virtual function: with mdev it offers types, of which it takes one; otherwise it is opened itself, as VFIO's, once a
 * type was written to it.
 */
#include <linux/vfio.h>

#include "host_driver.h"

struct function {
    /* The first, as VFIO wants it; the function's driver data points here. */
    struct vfio_pci_core_device core;
    struct gpu *gpu;
    struct offers *offers;
    /* Guards what follows. */
    struct mutex lock;
    const struct vgpu_type *type;
    unsigned int instance;
    bool is_open;
};

static struct function *function_of(struct device *dev) {
    return container_of(dev_get_drvdata(dev), struct function, core);
}

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attribute,
                                         char *text) {
    struct function *function = function_of(dev);
    int length = sysfs_emit(text, "ID    : vGPU Name\n");

    mutex_lock(&function->lock);
    for (unsigned int i = 0; i < VGPU_TYPES && !function->type; i++) {
        if (gpu_left(function->gpu, &vgpu_types[i], function->instance)) {
            length +=
                sysfs_emit_at(text, length, "%-5u : %s\n", vgpu_types[i].id, vgpu_types[i].name);
        }
    }
    mutex_unlock(&function->lock);
    return length;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attribute,
                                      char *text) {
    struct function *function = function_of(dev);
    ssize_t length;

    mutex_lock(&function->lock);
    length = sysfs_emit(text, "%u\n", function->type ? function->type->id : 0);
    mutex_unlock(&function->lock);
    return length;
}

static int typed(struct function *function, unsigned int id) {
    const struct vgpu_type *type = vgpu_type_of(id);
    int result;

    if (function->is_open) {
        return -EBUSY;
    }
    if (id == 0) {
        if (function->type) {
            gpu_give_back(function->gpu, function->type, function->instance);
        }
        function->type = NULL;
        return 0;
    }
    if (function->type) {
        return -EBUSY;
    }
    if (!type) {
        return -EINVAL;
    }
    result = gpu_take(function->gpu, type, function->instance);
    if (!result) {
        function->type = type;
    }
    return result;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attribute,
                                       const char *text, size_t size) {
    struct function *function = function_of(dev);
    unsigned int id;
    int result = kstrtouint(text, 0, &id);

    if (result) {
        return result;
    }
    mutex_lock(&function->lock);
    result = typed(function, id);
    mutex_unlock(&function->lock);
    return result ? result : (ssize_t)size;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attribute,
                                    char *text) {
    return sysfs_emit(text, "%u\n", function_of(dev)->instance);
}

static ssize_t gpu_instance_id_store(struct device *dev, struct device_attribute *attribute,
                                     const char *text, size_t size) {
    struct function *function = function_of(dev);
    unsigned int instance;
    int result = kstrtouint(text, 0, &instance);

    if (result) {
        return result;
    }
    mutex_lock(&function->lock);
    if (function->type) {
        result = -EBUSY;
    } else {
        function->instance = instance;
    }
    mutex_unlock(&function->lock);
    return result ? result : (ssize_t)size;
}
static DEVICE_ATTR_RW(gpu_instance_id);

static struct attribute *function_attributes[] = {
    &dev_attr_creatable_vgpu_types.attr,
    &dev_attr_current_vgpu_type.attr,
    &dev_attr_gpu_instance_id.attr,
    NULL,
};
static const struct attribute_group function_group = {.name = "nvidia",
                                                      .attrs = function_attributes};

static int function_open(struct vfio_device *vdev) {
    struct function *function = container_of(vdev, struct function, core.vdev);
    int result = -ENODEV;

    mutex_lock(&function->lock);
    if (function->type) {
        result = vfio_pci_core_enable(&function->core);
    }
    function->is_open = !result;
    mutex_unlock(&function->lock);
    if (!result) {
        vfio_pci_core_finish_enable(&function->core);
    }
    return result;
}

static void function_close(struct vfio_device *vdev) {
    struct function *function = container_of(vdev, struct function, core.vdev);

    vfio_pci_core_close_device(vdev);
    mutex_lock(&function->lock);
    function->is_open = false;
    mutex_unlock(&function->lock);
}

static const struct vfio_device_ops function_operations = {
    .name = "nvidia-vgpu-vfio",
    .init = vfio_pci_core_init_dev,
    .release = vfio_pci_core_release_dev,
    .open_device = function_open,
    .close_device = function_close,
    .ioctl = vfio_pci_core_ioctl,
    .device_feature = vfio_pci_core_ioctl_feature,
    .read = vfio_pci_core_read,
    .write = vfio_pci_core_write,
    .mmap = vfio_pci_core_mmap,
    .request = vfio_pci_core_request,
    .match = vfio_pci_core_match,
    .bind_iommufd = vfio_iommufd_physical_bind,
    .unbind_iommufd = vfio_iommufd_physical_unbind,
    .attach_ioas = vfio_iommufd_physical_attach_ioas,
    .detach_ioas = vfio_iommufd_physical_detach_ioas,
};

static int registered(struct function *function, struct pci_dev *pdev) {
    int result;

    if (is_mediated()) {
        function->offers = offers_register(pdev, function->gpu, 1);
        return PTR_ERR_OR_ZERO(function->offers);
    }
    result = vfio_pci_core_register_device(&function->core);
    if (result) {
        return result;
    }
    result = sysfs_create_group(&pdev->dev.kobj, &function_group);
    if (result) {
        vfio_pci_core_unregister_device(&function->core);
    }
    return result;
}

int function_probe(struct pci_dev *pdev, struct gpu *gpu) {
    struct function *function =
        vfio_alloc_device(function, core.vdev, &pdev->dev, &function_operations);
    int result;

    if (IS_ERR(function)) {
        return (int)PTR_ERR(function);
    }
    function->gpu = gpu;
    function->instance = NO_INSTANCE;
    mutex_init(&function->lock);
    dev_set_drvdata(&pdev->dev, &function->core);
    result = registered(function, pdev);
    if (result) {
        vfio_put_device(&function->core.vdev);
    }
    return result;
}

void function_remove(struct pci_dev *pdev) {
    struct function *function = function_of(&pdev->dev);

    if (function->offers) {
        offers_unregister(function->offers);
    } else {
        sysfs_remove_group(&pdev->dev.kobj, &function_group);
        vfio_pci_core_unregister_device(&function->core);
    }
    if (function->type) {
        gpu_give_back(function->gpu, function->type, function->instance);
    }
    vfio_put_device(&function->core.vdev);
}
