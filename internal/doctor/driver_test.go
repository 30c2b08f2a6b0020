package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// library makes a shared object that exports these functions.
func library(t *testing.T, path, soname string, functions ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	source := "int open(const char *, int, ...);\nint reach(void) { return open(\"/dev/nvidiactl\", 2); }\n"
	for _, name := range functions {
		source += "int " + name + "(void) { return 0; }\n"
	}
	cc := exec.Command("cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", path, "-Wl,-soname,"+soname)
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
}

// driven is a machine with a driver and a Divvy that know these functions.
func driven(t *testing.T, files map[string]string, drivers, ours []string) Host {
	t.Helper()
	h := machine(t, files)
	library(t, filepath.Join(h.Root, "usr/lib64/libcuda.so.550.54.15"), "libcuda.so.1", drivers...)
	library(t, filepath.Join(h.Root, "usr/lib64/libnvidia-ml.so.550.54.15"), "libnvidia-ml.so.1", "nvmlInit_v2")
	library(t, h.Tree.Library("libcuda.so.1"), "libcuda.so.1", ours...)
	library(t, h.Tree.Library("libnvidia-ml.so.1"), "libnvidia-ml.so.1", "nvmlInit_v2")
	return h
}

// named is the one check of that name.
func named(t *testing.T, checks []Check, name string) Check {
	t.Helper()
	var found []Check
	for _, c := range checks {
		if c.Name == name {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d checks %q in %+v", len(found), name, checks)
	}
	return found[0]
}

// absent wants no check of that name.
func absent(t *testing.T, checks []Check, name string) {
	t.Helper()
	for _, c := range checks {
		if c.Name == name {
			t.Errorf("%+v", c)
		}
	}
}

const versionFile = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12"

func TestModuleAndLibraryOfOneRelease(t *testing.T) {
	files := map[string]string{"proc/driver/nvidia/version": versionFile}
	h := driven(t, files, nil, nil)
	want(t, named(t, h.driver(), "driver libraries"), OK, "usr/lib64/libcuda.so.550.54.15, ", "")
	want(t, named(t, h.driver(), "driver module"), OK, "550.54.15", "")
	absent(t, h.driver(), "other libraries")
	files["proc/driver/nvidia/version"] = strings.ReplaceAll(versionFile, "550.54.15", "560.35.03")
	want(t, named(t, driven(t, files, nil, nil).driver(), "driver libraries"), Fail, "is of release 550.54.15; expected 560.35.03", "")
	want(t, named(t, driven(t, nil, nil, nil).driver(), "driver module"), Fail, "not loaded", "modprobe")
}

// A host whose agent serves virtual machines alone needs no driver, and one that has no such agent does.
func TestDriverOfAHostForMachines(t *testing.T) {
	h := machine(t, nil)
	want(t, named(t, h.driver(), "driver libraries"), Fail, "no NVIDIA driver", "install the driver")
	h.MachinesOnly = true
	want(t, named(t, h.driver(), "driver libraries"), OK, "not needed", "")
	if checks := h.driver(); len(checks) != 1 {
		t.Errorf("%+v", checks)
	}
}

func TestOtherLibrariesAreTold(t *testing.T) {
	h := driven(t, map[string]string{"proc/driver/nvidia/version": versionFile}, nil, nil)
	library(t, filepath.Join(h.Root, "usr/local/cuda/compat/libcuda.so.560.35.03"), "libcuda.so.1")
	library(t, filepath.Join(h.Root, "usr/lib/libcuda.so.1"), "libother.so.1")
	absent(t, h.driver(), "other libraries")
	want(t, named(t, h.driver(), "forward compatibility"), OK, "not used in shares: "+filepath.Join(h.Root, "usr/local/cuda/compat/libcuda.so.560.35.03"), "")
	led := h
	led.LibraryPath = []string{filepath.Join(h.Root, "usr/local/cuda/compat")}
	want(t, named(t, led.driver(), "forward compatibility"), Warn, "LD_LIBRARY_PATH leads to forward-compatibility libraries", "out of LD_LIBRARY_PATH")
	if c := named(t, h.driver(), "driver libraries"); strings.Contains(c.Found, "compat") {
		t.Errorf("%+v", c)
	}
	if err := os.WriteFile(filepath.Join(h.Root, "usr/lib/libcuda.so.470.256.02"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := named(t, h.driver(), "other libraries")
	want(t, c, Warn, "libcuda.so.470.256.02 is an empty file", "remove")
	if strings.Contains(c.Found, "libother") {
		t.Errorf("%+v", c)
	}
}

// A driver that is newer than every description is told of once, and nothing else changes.
func TestNewerDriverIsToldOnce(t *testing.T) {
	known := []string{"cuInit", "cuMemAlloc_v2"}
	h := driven(t, nil, append(known, "cuEGLApiInit", "cudbgApiInit"), known)
	absent(t, h.driver(), "driver functions")
	newer := append(known, "cuTileA", "cuTileB", "cuTileC", "cuTileD", "cuTileE", "cuTileF")
	h = driven(t, nil, newer, known)
	want(t, named(t, h.driver(), "driver functions"), OK, "6 of its functions go to it unchanged (cuTileA, cuTileB, cuTileC, cuTileD, cuTileE, …)", "")
}

func TestMemoryBesideCUDA(t *testing.T) {
	const name = "memory beside CUDA"
	absent(t, driven(t, map[string]string{migration: "Y\n", "etc/OpenCL/vendors/pocl.icd": ""}, nil, nil).driver(), name)
	for file, says := range map[string]string{
		"etc/OpenCL/vendors/nvidia.icd":                   "OpenCL (/etc/OpenCL/vendors/nvidia.icd)",
		"usr/share/vulkan/icd.d/nvidia_icd.x86_64.json":   "Vulkan (/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json)",
		"usr/share/glvnd/egl_vendor.d/10_nvidia.json":     "OpenGL (/usr/share/glvnd/egl_vendor.d/10_nvidia.json)",
		"usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.550.1": "OpenGL (/usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.550.1)",
		migration: "host memory that moves to the GPU",
	} {
		h := driven(t, map[string]string{file: "N\n"}, nil, nil)
		want(t, named(t, h.driver(), name), OK, says, "")
	}
}
