// SPDX-License-Identifier: GPL-2.0
/* The physical function: its device node, whose openers keep it, and what a test says of its GPU instances. */
#include <linux/fs.h>
#include <linux/slab.h>

#include "host_driver.h"

static DEFINE_IDA(minors);

static int node_open(struct inode *inode, struct file *file) {
    struct gpu *gpu = container_of(file->private_data, struct gpu, node);
    int result = 0;

    mutex_lock(&gpu->door);
    if (gpu->leaving) {
        result = -ENODEV;
    } else {
        gpu->openers++;
    }
    mutex_unlock(&gpu->door);
    return result;
}

static int node_release(struct inode *inode, struct file *file) {
    struct gpu *gpu = container_of(file->private_data, struct gpu, node);

    mutex_lock(&gpu->door);
    gpu->openers--;
    mutex_unlock(&gpu->door);
    wake_up(&gpu->closed);
    return 0;
}

static const struct file_operations node_operations = {
    .owner = THIS_MODULE,
    .open = node_open,
    .release = node_release,
};

static bool left_alone(struct gpu *gpu) {
    mutex_lock(&gpu->door);
    gpu->leaving = gpu->openers == 0;
    mutex_unlock(&gpu->door);
    return gpu->leaving;
}

/* The bits of the GPU instances that there are: on a real GPU they are made through NVML. */
static ssize_t instances_show(struct device *dev, struct device_attribute *attribute, char *text) {
    struct gpu *gpu = dev_get_drvdata(dev);

    return sysfs_emit(text, "%lu\n", gpu->instances);
}

static ssize_t instances_store(struct device *dev, struct device_attribute *attribute,
                               const char *text, size_t size) {
    struct gpu *gpu = dev_get_drvdata(dev);
    unsigned long instances;
    int result = kstrtoul(text, 0, &instances);

    if (result) {
        return result;
    }
    mutex_lock(&gpu->ledger);
    if (gpu->vgpus || gpu->taken & ~instances) {
        result = -EBUSY;
    } else {
        gpu->instances = instances;
    }
    mutex_unlock(&gpu->ledger);
    return result ? result : (ssize_t)size;
}
static DEVICE_ATTR_RW(instances);

static struct attribute *gpu_attributes[] = {&dev_attr_instances.attr, NULL};
static const struct attribute_group gpu_group = {.name = "double", .attrs = gpu_attributes};

static int offered(struct gpu *gpu) {
    /* GPUs with virtual functions offer their types there. */
    if (!is_mediated() || pci_sriov_get_totalvfs(gpu->pdev)) {
        return 0;
    }
    gpu->offers = offers_register(gpu->pdev, gpu, GPU_MEMORY);
    return PTR_ERR_OR_ZERO(gpu->offers);
}

static int started(struct gpu *gpu) {
    int result = pci_enable_device(gpu->pdev);

    if (result) {
        return result;
    }
    snprintf(gpu->name, sizeof(gpu->name), "nvidia%u", gpu->minor);
    gpu->node = (struct miscdevice){.minor = MISC_DYNAMIC_MINOR,
                                    .name = gpu->name,
                                    .fops = &node_operations,
                                    .mode = 0666,
                                    .parent = &gpu->pdev->dev};
    result = misc_register(&gpu->node);
    if (result) {
        goto disable;
    }
    result = sysfs_create_group(&gpu->pdev->dev.kobj, &gpu_group);
    if (result) {
        goto deregister;
    }
    result = offered(gpu);
    if (result) {
        goto remove;
    }
    return 0;
remove:
    sysfs_remove_group(&gpu->pdev->dev.kobj, &gpu_group);
deregister:
    misc_deregister(&gpu->node);
disable:
    pci_disable_device(gpu->pdev);
    return result;
}

int gpu_probe(struct pci_dev *pdev) {
    struct gpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
    int minor, result;

    if (!gpu) {
        return -ENOMEM;
    }
    minor = ida_alloc(&minors, GFP_KERNEL);
    if (minor < 0) {
        kfree(gpu);
        return minor;
    }
    gpu->pdev = pdev;
    gpu->minor = (unsigned int)minor;
    mutex_init(&gpu->door);
    mutex_init(&gpu->ledger);
    init_waitqueue_head(&gpu->closed);
    pci_set_drvdata(pdev, gpu);
    result = started(gpu);
    if (result) {
        ida_free(&minors, gpu->minor);
        kfree(gpu);
    }
    return result;
}

/* Waits for whoever has the node open, beyond the reach of any signal, as the vendor's driver does. */
void gpu_remove(struct pci_dev *pdev) {
    struct gpu *gpu = pci_get_drvdata(pdev);

    wait_event(gpu->closed, left_alone(gpu));
    if (gpu->offers) {
        offers_unregister(gpu->offers);
    }
    pci_disable_sriov(pdev);
    sysfs_remove_group(&pdev->dev.kobj, &gpu_group);
    misc_deregister(&gpu->node);
    pci_disable_device(pdev);
    ida_free(&minors, gpu->minor);
    kfree(gpu);
}
