# The simulated driver.

include lib/simgpu/nvml.mk
