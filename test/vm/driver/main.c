// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

#include "host_driver.h"

/* Read when a function is bound. */
static bool mediated;
module_param(mediated, bool, 0644);
MODULE_PARM_DESC(mediated, "functions offer vGPUs by mdev, and not as virtual functions of VFIO's");

static bool mixed;
module_param(mixed, bool, 0644);
MODULE_PARM_DESC(mixed, "vGPUs of one GPU may differ in size");

static bool refuse_functions;
module_param(refuse_functions, bool, 0644);
MODULE_PARM_DESC(refuse_functions, "enabling virtual functions fails");

bool is_mediated(void) {
    return READ_ONCE(mediated);
}

bool is_mixed(void) {
    return READ_ONCE(mixed);
}

static struct pci_driver host_driver;

static int host_probe(struct pci_dev *pdev, const struct pci_device_id *id) {
    if (!pdev->is_virtfn) {
        return gpu_probe(pdev);
    }
    if (pci_dev_driver(pci_physfn(pdev)) != &host_driver) {
        return -ENODEV;
    }
    return function_probe(pdev, pci_get_drvdata(pci_physfn(pdev)));
}

static void host_remove(struct pci_dev *pdev) {
    if (pdev->is_virtfn) {
        function_remove(pdev);
    } else {
        gpu_remove(pdev);
    }
}

static int host_functions(struct pci_dev *pdev, int count) {
    return READ_ONCE(refuse_functions) && count ? -EIO : pci_sriov_configure_simple(pdev, count);
}

/* It takes no function that was not given to it by driver_override. */
static const struct pci_device_id none[] = {{0}};

static struct pci_driver host_driver = {
    .name = "nvidia",
    .id_table = none,
    .probe = host_probe,
    .remove = host_remove,
    .sriov_configure = host_functions,
    /* Virtual functions are opened by machines, which own the memory that they reach. */
    .driver_managed_dma = true,
};

static int __init host_start(void) {
    int result = mdev_register_driver(&mediated_driver);

    if (result) {
        return result;
    }
    result = pci_register_driver(&host_driver);
    if (result) {
        mdev_unregister_driver(&mediated_driver);
    }
    return result;
}

static void __exit host_stop(void) {
    pci_unregister_driver(&host_driver);
    mdev_unregister_driver(&mediated_driver);
}

module_init(host_start);
module_exit(host_stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("plays a vendor's host driver of GPUs, for tests");
